"""docker/install.sh: the Python environment of the service image is made as in the image, and measured.

Its packages are those that `make install` has just put into uv's cache; the CPU build of torch is on an
index that tests do not reach, so for the worker uv is replaced by a recorder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.compose import ROOT

MEGABYTES = 250  # vl-convert, which renders plots, is 84 of them
HEAVY = {"torch", "torchvision", "timm", "numpy", "scipy", "scikit-learn", "matplotlib", "cleverhans"}
RECORDER = """#!/bin/sh
echo "$@" >>"$RECORD/calls"
for argument; do [ -f "$argument" ] && cp "$argument" "$RECORD/lock"; done
exit 0
"""
ENTRY = re.compile(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)", re.MULTILINE)


def install(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "docker/install.sh", *arguments]
    return subprocess.run(command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True)


def uv_folder() -> str:
    """Path of the uv that `make install` found or installed."""
    found = shutil.which("uv")
    return str(Path(found).parent if found else ROOT / ".bootstrap" / "bin")


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """The environment of docker/service.Dockerfile, bytecode included."""
    folder = tmp_path / "environment"
    variables = {
        "ASSAY_ENVIRONMENT": str(folder),
        "ASSAY_PYTHON": sys.executable,
        "PATH": f"{uv_folder()}:{os.environ['PATH']}",
        "UV_COMPILE_BYTECODE": "1",
        "UV_LINK_MODE": "copy",
    }
    for arguments in (("locked", "requirements-service.txt"), ("package",)):
        run = install(*arguments, **variables)
        assert run.returncode == 0, run.stderr
    return folder


def run_in(environment: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ASSAY_", "PYTHON"))}
    command = [environment / "bin" / "python", "-B", *arguments]
    return subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True)


@pytest.mark.slow
def test_the_environment_of_the_service_image(environment: Path, tmp_path: Path) -> None:
    """One test, because making it is most of the time: small, without torch, and what is run is in it."""
    blocks = sum(path.lstat().st_blocks for path in environment.rglob("*"))
    assert 20 < blocks * 512 / 1e6 <= MEGABYTES
    found = {path.name.partition("-")[0].lower() for path in environment.rglob("*.dist-info")}
    assert {"fastapi", "sqlalchemy", "celery", "assay_robustness"} <= found
    assert not {name.replace("-", "_") for name in HEAVY} & found
    assert not [name for name in found if name.startswith("nvidia")]
    modules = "assay.service.app, assay.service.server, assay.service.migrate, assay.service.cli.main"
    migrating = "from assay.service.store.store import open_store; open_store(sys.argv[1]).ping()"
    program = f"import sys, {modules}; {migrating}; print(assay.__file__)"
    run = run_in(environment, "-c", program, f"sqlite:///{tmp_path / 'new.sqlite'}", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).is_relative_to(environment)
    assert (environment / "bin" / "assay").exists()


@pytest.fixture
def recorder(tmp_path: Path) -> dict[str, str]:
    """Variables that put a uv on PATH that only records its arguments."""
    program = tmp_path / "bin" / "uv"
    program.parent.mkdir()
    program.write_text(RECORDER)
    program.chmod(0o755)
    return {"RECORD": str(tmp_path), "PATH": f"{program.parent}:{os.environ['PATH']}"}


def test_a_gpu_worker_gets_the_whole_lock(recorder: dict[str, str], tmp_path: Path) -> None:
    run = install("locked", "requirements-worker.txt", "cuda", **recorder)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "lock").read_text() == (ROOT / "requirements-worker.txt").read_text()
    calls = (tmp_path / "calls").read_text()
    assert "--require-hashes" in calls
    assert "--torch-backend" not in calls


def test_a_cpu_worker_gets_the_lock_without_cuda_and_the_same_torch(
    recorder: dict[str, str], tmp_path: Path
) -> None:
    run = install("locked", "requirements-worker.txt", "cpu", **recorder, ASSAY_UNHASHED_TORCH="yes")
    assert run.returncode == 0, run.stderr
    whole = (ROOT / "requirements-worker.txt").read_text()
    versions = dict(ENTRY.findall(whole))
    left_out = versions.keys() - dict(ENTRY.findall((tmp_path / "lock").read_text())).keys()
    assert {"torch", "torchvision", "triton", "nvidia-cudnn-cu13", "cuda-bindings"} <= left_out
    assert all(name.startswith(("torch", "triton", "nvidia-", "cuda-")) for name in left_out)
    kept = [entry for entry in re.split(r"\n(?=\S)", whole) if ENTRY.match(entry)[1] not in left_out]
    assert (tmp_path / "lock").read_text().strip() == "\n".join(kept).strip(), "the other hashes stay"
    assert "without hashes" in run.stderr
    last = (tmp_path / "calls").read_text().splitlines()[-1]
    torch = [f"torch=={versions['torch']}", f"torchvision=={versions['torchvision']}"]
    assert last.split()[-2:] == torch
    assert "--torch-backend cpu" in last


@pytest.mark.parametrize("version", [None, "2.0.0"])
def test_without_hashes_of_the_locked_torch_a_cpu_worker_is_not_made(
    recorder: dict[str, str], tmp_path: Path, version: str | None
) -> None:
    checkout = checkout_with(tmp_path, version)
    run = install("locked", "requirements-worker.txt", "cpu", cwd=checkout, **recorder)
    assert run.returncode == 2
    assert "requirements-cpu.txt has no hashes for the versions" in run.stderr
    assert not (tmp_path / "calls").exists(), "known before anything is downloaded"


def checkout_with(folder: Path, version: str | None, torch_hash: str = "0" * 64) -> Path:
    """What install.sh reads, with a lock of the CPU builds of another version, or of none."""
    checkout = folder / "checkout"
    (checkout / "docker").mkdir(parents=True)
    shutil.copy(ROOT / "docker" / "install.sh", checkout / "docker")
    shutil.copy(ROOT / "requirements-worker.txt", checkout)
    entry = f"torch=={version}+cpu \\\n    --hash=sha256:{torch_hash}\n"
    (checkout / "requirements-cpu.txt").write_text(entry if version else "# none\n")
    return checkout


def wheel(folder: Path, version: str, *, stated: bool = True) -> str:
    """Puts a torch of nothing but its name into an index, which may state its sha256; returns that."""
    (folder / "torch").mkdir(parents=True)
    path, facts = folder / "torch" / f"torch-{version}-py3-none-any.whl", f"torch-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torch/__init__.py", "")
        archive.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        archive.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{facts}/RECORD", "")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    address = path.name.replace("+", "%2B") + (f"#sha256={digest}" if stated else "")
    page = f'<!DOCTYPE html><html><body><a href="{address}">{path.name}</a></body></html>'
    (folder / "torch" / "index.html").write_text(page)
    return digest


@pytest.mark.parametrize("right", [True, False])
def test_the_cpu_build_is_installed_by_its_hash(tmp_path: Path, right: bool) -> None:
    """With the real uv, and a wheel in a folder in place of the index that tests do not reach."""
    found = wheel(tmp_path / "index", "9.9.9+cpu", stated=False)
    checkout = checkout_with(tmp_path, "9.9.9", found if right else "0" * 64)
    (checkout / "lock.txt").write_text("torch==9.9.9 \\\n    --hash=sha256:" + "1" * 64 + "\n")
    variables = {
        "ASSAY_ENVIRONMENT": str(tmp_path / "environment"),
        "ASSAY_PYTHON": sys.executable,
        "PATH": f"{uv_folder()}:{os.environ['PATH']}",
        "ASSAY_TORCH_INDEX": f"file://{tmp_path / 'index'}",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }
    run = install("locked", "lock.txt", "cpu", cwd=checkout, **variables)
    there = list((tmp_path / "environment").rglob("torch-9.9.9+cpu.dist-info"))
    assert (run.returncode == 0, bool(there)) == (right, right), run.stderr
    if not right:
        assert "Hash mismatch" in run.stderr


def test_another_device_is_refused(recorder: dict[str, str]) -> None:
    run = install("locked", "requirements-worker.txt", "tpu", **recorder)
    assert run.returncode == 2
    assert "allowed: cuda, cpu" in run.stderr


def test_the_hashes_of_the_cpu_builds_are_written(tmp_path: Path) -> None:
    """`make lock-cpu`, with the real uv; what it writes is what install.sh asks for."""
    found = wheel(tmp_path / "index", "9.9.9+cpu")
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements-worker.txt").write_text("torch==9.9.9 \\\n    --hash=sha256:" + "1" * 64 + "\n")
    command = ["make", "lock-cpu", f"TORCH_INDEX=file://{tmp_path / 'index'}"]
    path = f"{uv_folder()}:{os.environ['PATH']}"
    variables = os.environ | {"PATH": path, "UV_CACHE_DIR": str(tmp_path / "cache")}
    run = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    text = (tmp_path / "requirements-cpu.txt").read_text()
    assert text == f"torch==9.9.9+cpu \\\n    --hash=sha256:{found}\n"


# A uv that records its arguments, and that can or cannot resolve the CPU builds.
RESOLVER = """#!/bin/sh
echo "$@" >>"$RECORD"
case " $* " in *" compile "*)
    [ "$REACHED" = yes ] || exit 2
    sed "s/$/ \\\\\\\\\\n    --hash=sha256:00/" >requirements-cpu.txt ;;
esac
"""


@pytest.mark.parametrize("reached", [True, False])
def test_make_install_takes_the_cpu_builds_where_their_index_can_be_reached(
    tmp_path: Path, reached: bool
) -> None:
    checkout = checkout_with(tmp_path, None)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, checkout)
    (checkout / "requirements-dev.txt").write_text(
        torch_of_the_lock := "torch==9.9.9 \\\n    --hash=sha256:11\n"
    )
    (checkout / "requirements-worker.txt").write_text(torch_of_the_lock)
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(RESOLVER)
    uv.chmod(0o755)
    variables = os.environ | {
        "PATH": f"{uv.parent}:{os.environ['PATH']}",
        "RECORD": str(tmp_path / "calls"),
        "REACHED": "yes" if reached else "no",
    }
    command = ["make", "install", "DEVICE=cpu", f"PYTHON={sys.executable}"]
    run = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    calls = (tmp_path / "calls").read_text()
    hashed = "--require-hashes --requirement requirements-cpu.txt"
    plain = "sync --quiet --require-hashes --python .venv/bin/python requirements-dev.txt"
    assert (hashed in calls, plain in calls) == (reached, not reached)
    assert ("cannot be had" in run.stdout) is not reached
    # The next target keeps to the build, and installs nothing.
    before = calls
    again = subprocess.run(
        ["make", "install", f"PYTHON={sys.executable}"], cwd=checkout, env=variables, capture_output=True
    )
    assert again.returncode == 0
    assert (tmp_path / "calls").read_text().replace("--version\n", "") == before.replace("--version\n", "")


def test_make_install_refuses_another_device() -> None:
    run = subprocess.run(["make", "install", "DEVICE=tpu"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 2
    assert "DEVICE=tpu given; allowed: cpu, cuda" in run.stderr
