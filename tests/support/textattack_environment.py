"""The environment of workers with TextAttack, made as in their image, and a worker of it beside a service."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = "requirements-textattack.txt"
SECONDS = 900


def make_environment(folder: Path) -> Path:
    """Makes the environment with uv and its cache; returns its interpreter."""
    found = shutil.which("uv")
    uv = Path(found).parent if found else ROOT / ".bootstrap" / "bin"
    own = {
        "ASSAY_ENVIRONMENT": str(folder),
        "ASSAY_PYTHON": sys.executable,
        "PATH": f"{uv}:{os.environ['PATH']}",
    }
    for arguments in (("locked", LOCK), ("package",)):
        command = ["sh", "docker/install.sh", *arguments]
        run = subprocess.run(
            command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, timeout=SECONDS
        )
        assert run.returncode == 0, run.stderr
    return folder / "bin" / "python"


@contextmanager
def joined_worker(
    python: Path, state: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """`assay worker` of an environment, beside the service on a state folder; stopped at the end."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ASSAY_", "PYTHON"))}
    command = [python.parent / "assay", "worker", "--state", state, "--name", "textattack"]
    with state.with_suffix(".worker.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=state, env=kept | environment, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)
