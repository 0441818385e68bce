"""The bundle for a box without network: what travels, and a box that has it."""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from assay.workers import identity
from benchmarks.acceptance import bundle
from benchmarks.acceptance.bundle import IMAGE, Box, closure, locked, main, modules_of, pack, selected
from tests.benchmarks.acceptance.boxes import image, without_network

HERE = "{}.{}".format(*sys.version_info)
BOX = Box("3.12", "x86_64")
LOCK = """\
both==1.2 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
old==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:cc
old==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:dd
mac==1 ; sys_platform == 'darwin' \\
    --hash=sha256:ee
Torch==2.15.0 \\
    --hash=sha256:ff
"""


def test_the_lock_is_read_for_the_box() -> None:
    entries = locked(LOCK, BOX)
    assert entries == {
        "both": "both==1.2 --hash=sha256:aa --hash=sha256:bb",
        "old": "old==2.0 --hash=sha256:dd",
        "torch": "Torch==2.15.0 --hash=sha256:ff",
    }
    assert locked(LOCK, Box("3.11", "x86_64"))["old"] == "old==1.0 --hash=sha256:cc"


def test_torch_never_travels_and_what_the_lock_lacks_is_said() -> None:
    lock = dict.fromkeys(("both", "old", "torch", "triton", "nvidia-cublas", "cuda-toolkit"), "")
    assert selected(lock, {"old"}, lock) == ["both"]
    with pytest.raises(ValueError, match=r"requirements-dev\.txt has no more; run `make lock`"):
        selected(["both", "more"], (), lock)


def test_needs_are_followed_with_their_extras_and_markers() -> None:
    needed = closure([("assay-robustness", "store")], BOX)
    assert {"celery", "kombu", "psycopg", "psycopg-binary", "sqlalchemy", "httpx", "anyio"} <= needed
    assert not {"torch", "colorama", "assay-robustness"} & needed
    assert "torch" in closure([("assay-robustness", "worker")], BOX)
    with pytest.raises(ValueError, match="no-such-package is not installed here"):
        closure([("no-such-package", "")], BOX)


def test_modules_are_those_that_a_box_is_asked_for() -> None:
    assert modules_of(["opencv-python", "scikit-learn", "pillow", "no-such-package"]) == {
        "opencv-python": "cv2",
        "scikit-learn": "sklearn",
        "pillow": "PIL",
    }


def test_the_newest_and_the_oldest_tags_of_wheels_are_asked_for() -> None:
    tags = BOX.platforms()
    assert {"manylinux_2_39_x86_64", "manylinux_2_17_x86_64", "manylinux_2_5_x86_64"} < set(tags)
    assert tags[-3:] == ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"]


@pytest.mark.parametrize("given", ["3", "4.1", "3.x"])
def test_a_wrong_version_is_refused(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--python", given])
    assert f"--python {given} given; a version such as 3.12 is needed" in capsys.readouterr().err


def wheel(folder: Path) -> None:
    """A wheel with a package, a module in its data, and an example that stays here."""
    with zipfile.ZipFile(folder / "planted-1-py3-none-any.whl", "w") as archive:
        archive.writestr("planted/__init__.py", "HERE = True\n")
        archive.writestr("planted-1.data/purelib/beside.py", "HERE = True\n")
        archive.writestr("planted-1.data/scripts/planted", "#!/bin/sh\n")
        archive.writestr("pyautoattack/examples/weights.bin", "0" * 1000)
        archive.writestr("planted-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: planted\nVersion: 1\n")


@pytest.fixture
def unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle for this Python with one wheel, as it lies on the box."""
    monkeypatch.setattr(bundle, "PRESET", 0)
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels")
    described = {"python": HERE, "commit": "c0ffee", "version": "0.1", "of_the_box": {"torch": "torch"}}
    pack(tmp_path / "bundle.tar.xz", tmp_path / "wheels", described)
    return unpack(tmp_path / "bundle.tar.xz")


def unpack(path: Path) -> Path:
    with tarfile.open(path) as archive:
        archive.extractall(path.parent / "box", filter="tar")
    return path.parent / "box" / "gpu-bundle"


def accepted(folder: Path, *given: str) -> str:
    """What the command says in the checkout on the box."""
    python = folder / "checkout" / ".venv" / "bin" / "python"
    done = without_network([python, "-m", "benchmarks.acceptance", *given], folder / "checkout")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.costly
def test_a_box_with_torch_runs_the_checks_without_network_and_keeps_its_own(unpacked: Path) -> None:
    checkout = unpacked / "checkout"
    assert (checkout / "src" / "assay" / "workers").is_symlink()
    done = without_network([sys.executable, unpacked / "setup.py"], unpacked.parent)
    assert done.returncode == 0, done.stderr
    assert f"cd {checkout} && .venv/bin/python -m benchmarks.acceptance" in done.stdout
    asked = (
        "import json, os, assay, beside, planted, torch; from importlib.metadata import version;"
        "print(json.dumps([assay.__file__, planted.__file__, torch.__file__, os.environ['ASSAY_COMMIT'],"
        " version('assay-robustness')]))"
    )
    python = checkout / ".venv" / "bin" / "python"
    found = json.loads(without_network([python, "-c", asked], unpacked.parent).stdout)
    import torch

    packages = checkout / ".venv" / "lib" / f"python{HERE}" / "site-packages"
    assert found[0] == str(checkout / "src" / "assay" / "__init__.py")
    assert found[1:] == [str(packages / "planted" / "__init__.py"), torch.__file__, "c0ffee", "0.1"]
    assert not (packages / "pyautoattack").exists()
    assert without_network(["make", "--question", ".venv/.installed"], checkout).returncode == 0
    assert "precision" in accepted(unpacked, "--list")
    text = accepted(unpacked, "--device", "emulated", "--only", "precision", "--records", str(unpacked))
    assert "1 of 1 passed" in text
    assert "| commit | c0ffee |" in (unpacked / "results-gpu.md").read_text()


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"python": "3.2"},
            f"this is Python {HERE}, and the wheels are for 3.2: make gpu-bundle BOX_PYTHON={HERE}",
        ),
        ({"of_the_box": {"no-such": "no_such"}}, "this python3 lacks no-such, and so does the bundle"),
    ],
)
def test_a_box_that_does_not_fit_is_refused(change: dict[str, object], message: str, unpacked: Path) -> None:
    path = unpacked / "bundle.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    done = without_network([sys.executable, unpacked / "setup.py"], unpacked.parent)
    assert done.returncode == 2
    assert message in done.stderr
    assert not (unpacked / "checkout" / ".venv").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_bundle_runs_on_an_image_that_has_torch_alone(tmp_path: Path) -> None:
    """Wheels of the lock, for this Python; they come from an index, the box has none."""
    target = tmp_path / "bundle.tar.xz"
    assert main(["--python", HERE, "--to", str(target)]) == 0
    assert target.stat().st_size < 64 * 2**20
    python = image(tmp_path / "image", closure([(name, "") for name in IMAGE], Box(HERE, BOX.machine)))
    for module, code in (("torch", 0), ("fastapi", 1)):
        assert without_network([python, "-c", f"import {module}"], tmp_path).returncode == code
    folder = unpack(target)
    done = without_network([python, folder / "setup.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "speed-cleverhans" in accepted(folder, "--list")
    given = ("--device", "emulated", "--records", str(tmp_path / "records"), "--together", "2")
    assert "2 of 2 passed" in accepted(folder, *given, "--only", "precision", "laws-attention")
    assert (
        f"| commit | {identity.code()['commit']} |" in (tmp_path / "records" / "results-gpu.md").read_text()
    )
