"""Sets up the bundle around it, on a box without network: `python3 gpu-bundle/setup.py`.

Makes `checkout/.venv`: the bundle's wheels, and behind them all that the python3 which runs this has, its
torch too, of which nothing is changed. Needs that python3 alone.
"""

from __future__ import annotations

import importlib.util
import json
import site
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

DISTRIBUTION = "assay-robustness"


def main(folder: Path) -> int:
    """Sets up the bundle in a folder.

    Returns:
        0, or 2 where the box lacks something.
    """
    bundle = json.loads((folder / "bundle.json").read_text())
    python = "{}.{}".format(*sys.version_info)
    if python != bundle["python"]:
        return _refuse(
            f"this is Python {python}, and the wheels are for {bundle['python']}:"
            f" make gpu-bundle BOX_PYTHON={python}"
        )
    missing = [name for name, module in bundle["of_the_box"].items() if not _has(module)]
    if missing:
        return _refuse(
            f"this python3 lacks {', '.join(sorted(missing))}, and so does the bundle: list what the box has"
            " (python3 -m pip list --format=freeze), and on a machine with network make gpu-bundle BOX=FILE"
        )
    checkout = folder / "checkout"
    environment = checkout / ".venv"
    venv.EnvBuilder(clear=True, symlinks=True, with_pip=False).create(environment)
    packages = environment / "lib" / f"python{python}" / "site-packages"
    for wheel in sorted((folder / "wheels").iterdir()):
        _unpack(wheel, packages)
    about = packages / f"{DISTRIBUTION.replace('-', '_')}-{bundle['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {bundle['version']}\n"
    )
    lines = [f"import os; os.environ.setdefault('ASSAY_COMMIT', {bundle['commit'] or ''!r})"]
    lines += [str(checkout / "src")]
    lines += [f"import site; site.addsitedir({path!r})" for path in _site_packages()]
    # Processed in the order of the names, so that what the bundle has comes first.
    (packages / "zz_box.pth").write_text("\n".join(lines) + "\n")
    # What `make` looks for before it installs anything.
    (environment / ".device").write_text("cuda\n")
    (environment / ".installed").touch()
    run = [str(environment / "bin" / "python"), "-c", "import torch, assay; print(torch.__version__)"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)  # noqa: S603 (itself)
    if done.returncode:
        return _refuse(f"torch does not start in {environment}: {done.stderr.strip()[-500:]}")
    sys.stdout.write(
        f"set up with the box's torch {done.stdout.strip()}. Now:\n"
        f"  cd {checkout} && .venv/bin/python -m benchmarks.acceptance --together 16 --seconds 600\n"
    )
    return 0


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _site_packages() -> list[str]:
    """Where this python3 finds packages."""
    own = [*site.getsitepackages(), site.getusersitepackages()]
    kept = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return [path for path in dict.fromkeys([*kept, *own]) if Path(path).is_dir()]


def _unpack(wheel: Path, packages: Path) -> None:
    """A wheel is an archive of files for site-packages, in NAME.data/*lib, too."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            parts = entry.filename.split("/")
            if parts[0].endswith(".data"):
                if parts[1] not in ("purelib", "platlib"):
                    continue
                entry.filename = "/".join(parts[2:])
            if entry.filename:
                archive.extract(entry, packages)


def _refuse(reason: str) -> int:
    sys.stderr.write(f"setup.py: {reason}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent))
