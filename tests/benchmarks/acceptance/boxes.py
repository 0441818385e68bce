"""A box for a bundle: a Python with the packages of an image alone, and commands without network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path

SITE = Path(sysconfig.get_path("purelib"))
# An index and a proxy that do not answer, where a namespace without network cannot be had.
UNREACHABLE = "http://127.0.0.1:9"


def image(folder: Path, names: Iterable[str]) -> Path:
    """The python3 of a box that has these distributions of this environment, and no other."""
    venv.EnvBuilder(symlinks=True, with_pip=False).create(folder)
    site = folder / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
    for name in names:
        try:
            files = metadata.files(name) or []
        except metadata.PackageNotFoundError:
            continue  # of another platform
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            if not (site / top).exists():
                (site / top).symlink_to(SITE / top)
    return folder / "bin" / "python3"


def without_network(command: Sequence[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder: in a namespace without network, where the kernel lets us make one."""
    unshare = [tool, "--map-root-user", "--net"] if (tool := shutil.which("unshare")) else []
    if unshare and subprocess.run([*unshare, "true"], capture_output=True).returncode:
        unshare = []
    gone = dict.fromkeys(("PIP_INDEX_URL", "UV_INDEX_URL", "HTTP_PROXY", "HTTPS_PROXY"), UNREACHABLE)
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        [*unshare, *map(str, command)],
        cwd=folder,
        env=kept | gone | {"PIP_NO_INDEX": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
