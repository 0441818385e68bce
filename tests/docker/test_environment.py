"""docker/install.sh: the Python environment of the service image is made as in the image, and measured.

Its packages are those that `make install` has just put into uv's cache; the CPU build of torch is on an
index that tests do not reach, so for the worker uv is replaced by a recorder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.compose import ROOT

MEGABYTES = 120
HEAVY = {"torch", "torchvision", "timm", "numpy", "scipy", "scikit-learn", "matplotlib", "cleverhans"}
RECORDER = """#!/bin/sh
echo "$@" >>"$RECORD/calls"
for argument; do [ -f "$argument" ] && cp "$argument" "$RECORD/lock"; done
exit 0
"""
ENTRY = re.compile(r"^([a-z0-9-]+)(?:\[[a-z,]+\])?==(\S+)", re.MULTILINE)


def install(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", "docker/install.sh", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True)


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
    run = install("locked", "requirements-worker.txt", "cpu", **recorder)
    assert run.returncode == 0, run.stderr
    whole = (ROOT / "requirements-worker.txt").read_text()
    versions = dict(ENTRY.findall(whole))
    left_out = versions.keys() - dict(ENTRY.findall((tmp_path / "lock").read_text())).keys()
    assert {"torch", "torchvision", "triton", "nvidia-cudnn-cu13", "cuda-bindings"} <= left_out
    assert all(name.startswith(("torch", "triton", "nvidia-", "cuda-")) for name in left_out)
    kept = [entry for entry in re.split(r"\n(?=\S)", whole) if ENTRY.match(entry)[1] not in left_out]
    assert (tmp_path / "lock").read_text().strip() == "\n".join(kept).strip(), "the other hashes stay"
    last = (tmp_path / "calls").read_text().splitlines()[-1]
    torch = [f"torch=={versions['torch']}", f"torchvision=={versions['torchvision']}"]
    assert last.split()[-2:] == torch
    assert "--torch-backend cpu" in last


def test_another_device_is_refused(recorder: dict[str, str]) -> None:
    run = install("locked", "requirements-worker.txt", "tpu", **recorder)
    assert run.returncode == 2
    assert "allowed: cuda, cpu" in run.stderr
