"""The wheel, built from the archive of the source, in a folder of a user who has such packages too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from tests.e2e.jobs import attacking
from tests.support.servers import free_port

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("service", "workers", "models", "attacks")
# Each is executed if project code imports it, and then the job or the service fails.
MINE = ("service", "workers", "models", "attacks", "tasks", "numpy", "torch")
CLIENT = """
import sys
import models
from assay.service.client import AssayClient
with AssayClient(sys.argv[1]) as client:
    job = client.wait(sys.argv[2], timeout_seconds=120)
    print(models.MINE, job.state, client.results(job.id).evaluations[0].metrics["top1"].n)
"""


def build(kind: str, source: Path, out: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(out)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = out.glob("*.tar.gz" if kind == "sdist" else "*.whl")
    return built


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive of the source, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("built")
    archive = build("sdist", ROOT, folder / "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(folder / "source", filter="data")
    (source,) = (folder / "source").iterdir()
    return archive, build("wheel", source, folder / "wheel")


def test_the_wheel_holds_the_package_with_every_file_that_it_reads(archives: tuple[Path, Path]) -> None:
    archive, wheel = archives
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"assay"}
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES]
    run = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    assert {f"assay/{line}" for line in run.stdout.splitlines()} | {"assay/py.typed"} <= names
    check = [sys.executable, "-m", "twine", "check", "--strict", str(archive), str(wheel)]
    assert subprocess.run(check, capture_output=True).returncode == 0


@pytest.fixture
def python(archives: tuple[Path, Path], tmp_path: Path) -> Path:
    """Interpreter of a fresh environment with the wheel; dependencies come from this one's."""
    _, wheel = archives
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(environment)}))
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(site)
    # A path file in a folder that a path file names is not read: this checkout is not on the path.
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin" / "python"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The user's own, with packages of these names."""
    made = tmp_path / "mine"
    for name in MINE:
        (made / name).mkdir(parents=True)
        (made / name / "__init__.py").write_text("MINE = 'mine'\n")
    return made


@pytest.mark.slow
def test_it_runs_beside_packages_of_these_names(python: Path, folder: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "PYTHON"))}
    environment = kept | {"ASSAY_URL": url}
    assay = [str(python), "-P", "-m", "assay.service.cli.main"]
    where = subprocess.run(
        [str(python), "-P", "-c", "import assay; print(assay.__file__)"],
        cwd=folder, env=kept, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert Path(where).is_relative_to(python.parents[1])
    with subprocess.Popen([*assay, "serve", "--port", str(port)], cwd=folder, env=environment) as service:
        try:
            spec = folder / "job.json"
            spec.write_text(json.dumps(attacking(None, [{"name": "clean"}], limit=16)))
            for _ in range(600):
                assert service.poll() is None
                run = subprocess.run(
                    [*assay, "submit", str(spec)], cwd=folder, env=environment, capture_output=True, text=True
                )
                if run.returncode == 0:
                    break
                time.sleep(0.1)
            assert run.returncode == 0, run.stderr
            client = [str(python), "-c", CLIENT, url, run.stdout.strip()]
            done = subprocess.run(client, cwd=folder, env=kept, capture_output=True, text=True)
            assert (done.stdout, done.returncode) == ("mine succeeded 16\n", 0), done.stderr
        finally:
            service.terminate()
            assert service.wait(timeout=60) == 0
