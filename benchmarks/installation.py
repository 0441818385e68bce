"""Packages, size and import time of an installation, each in a virtual environment of its own.

`python -m benchmarks.installation` installs the core from this checkout, and prints the seconds of processor
time that importing the client and the command takes there and here: the smallest of `TIMES` processes.
`--locks` also installs the worker's lock and that with the reference libraries (several GB).

It needs uv, on PATH or in .bootstrap, and the package index or uv's cache.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMES = 6
MODULES = ("assay.service.client", "assay.service.cli.main")
LOCKS = ("requirements-worker.txt", "requirements-reference.txt")
IMPORT = "import time, {module}; print(time.process_time())"


def main() -> None:
    """Print a line for each installation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--locks", action="store_true", help="install the workers' locks, too")
    given = parser.parse_args()
    uv = shutil.which("uv") or str(ROOT / ".bootstrap" / "bin" / "uv")
    with tempfile.TemporaryDirectory(prefix="assay-installation-") as folder:
        core = installed(uv, Path(folder) / "core", [str(ROOT)])
        for name in MODULES:
            sys.stdout.write(f"import of {name}: {imported(core, name):.2f} s in the core")
            sys.stdout.write(f", {imported(Path(sys.executable), name):.2f} s here\n")
        for lock in LOCKS if given.locks else ():
            installed(uv, Path(folder) / lock.removesuffix(".txt"), ["--no-deps", "-r", str(ROOT / lock)])


def installed(uv: str, folder: Path, wanted: list[str]) -> Path:
    """Install into a new environment, print its packages and size, and return its interpreter."""
    run([uv, "venv", "--quiet", "--python", sys.executable, folder])
    python = folder / "bin" / "python"
    run([uv, "pip", "install", "--quiet", "--python", python, *wanted])
    listing: list[str | Path] = [uv, "pip", "list", "--quiet", "--python", python, "--format", "json"]
    packages = json.loads(run(listing))
    size = sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
    sys.stdout.write(f"{folder.name}: {len(packages)} packages, {size / 1e6:,.0f} MB\n")
    return python


def imported(python: Path, module: str) -> float:
    """Seconds of processor time until a module is imported, the start of Python included."""
    command: list[str | Path] = [python, "-P", "-c", IMPORT.format(module=module)]
    return min(float(run(command)) for _ in range(TIMES))


def run(command: Sequence[str | Path]) -> bytes:
    """What a command prints, in a folder without packages of the checkout.

    Raises:
        CalledProcessError: it fails; its own words are on standard error.
    """
    # Our own interpreters, and uv.
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd="/").stdout  # noqa: S603


if __name__ == "__main__":
    main()
