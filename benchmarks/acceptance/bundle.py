"""A bundle for a GPU box without network: `make gpu-bundle`, or `python -m benchmarks.acceptance.bundle`.

build/gpu-bundle.tar.xz has the checkout's tracked files as they are, the wheels that an image with torch
lacks, and `setup.py`, which needs no network there. Versions and hashes are those of the lock; torch and the
libraries that it brings never travel.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from assay.workers import identity
from benchmarks.acceptance import box_setup
from benchmarks.acceptance.process import ROOT

FOLDER, SETUP, DESCRIPTION = "gpu-bundle", "setup.py", "bundle.json"
LOCK = "requirements-dev.txt"
DISTRIBUTION = "assay-robustness"
# What the checks import: extras of this distribution, and packages.
EXTRAS = ("service", "reference", "control", "cli")
PACKAGES = ("pytest", "tokenizers", "transformers")
# What an image for deep learning has, with all that these need; `--box` says it of another.
IMAGE = (
    *("torch", "torchvision", "timm", "transformers", "scikit-learn", "scikit-image", "opencv-python"),
    *("numba", "pandas", "matplotlib", "h5py", "httpx", "jinja2"),
)
# Of the box's torch, and what cannot be imported, because TensorFlow is not in the lock.
TORCH = ("torch", "torchvision")
NEVER = re.compile(r"(torch|torchvision|triton|cuda-.*|nvidia-.*|tensorflow-.*)")
# Weights of examples, ten times as large as the rest.
LEFT_OUT = ("pyautoattack/examples/",)
# Tags of wheels for any Linux of the last ten years.
GLIBC = range(40, 4, -1)
PRESET: Final = 4  # of xz: half a minute


@dataclass(frozen=True)
class Box:
    """The machine that the bundle is for.

    Attributes:
        python: Its minor version, "3.12".
        machine: Of `uname -m`.
    """

    python: str
    machine: str

    def environment(self) -> dict[str, str]:
        """For the markers of requirements."""
        return {
            "implementation_name": "cpython",
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_system": "Linux",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }

    def platforms(self) -> list[str]:
        """Tags of wheels, the newest first."""
        old = [f"manylinux{name}_{self.machine}" for name in ("2014", "2010", "1")]
        return [f"manylinux_2_{minor}_{self.machine}" for minor in GLIBC] + old


def closure(roots: Iterable[tuple[str, str]], box: Box) -> set[str]:
    """Names of the distributions that roots need on the box, themselves among them.

    What a root needs there and is not installed here, as a backport, needs nothing itself.

    Args:
        roots: A distribution, and its extra or "".
        box: The machine.

    Raises:
        ValueError: A root is not installed here.
    """
    found: set[tuple[str, str]] = set()
    waiting = list(roots)
    first = {name for name, _ in waiting}
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            if name in first:
                raise ValueError(f"{name} is not installed here; run `make install` first") from None
            continue
        for need in map(Requirement, needs):
            if need.marker is None or need.marker.evaluate(box.environment() | {"extra": extra}):
                waiting += [(canonicalize_name(need.name), each) for each in (need.extras or {""})]
                waiting += [(canonicalize_name(need.name), "")]
    return {str(canonicalize_name(name)) for name, _ in found} - {DISTRIBUTION}


def locked(text: str, box: Box) -> dict[str, str]:
    """The lock's entries for the box by name, without their markers and with their hashes."""
    entries = {}
    for entry in re.split(r"\n(?=\S)", text.strip()):
        requirement, _, hashes = entry.replace("\\\n", " ").partition(" --hash=")
        pinned, _, marker = requirement.partition(";")
        if not marker.strip() or Marker(marker).evaluate(box.environment() | {"extra": ""}):
            name, _, version = pinned.strip().partition("==")
            entries[str(canonicalize_name(name))] = f"{name}=={version} --hash={' '.join(hashes.split())}"
    return entries


def selected(needed: Collection[str], has: Collection[str], lock: Mapping[str, str]) -> list[str]:
    """Names of the wheels that travel.

    Raises:
        ValueError: The lock has no entry for one of them.
    """
    names = sorted(name for name in needed if name not in has and not NEVER.fullmatch(name))
    if missing := [name for name in names if name not in lock]:
        raise ValueError(f"{LOCK} has no {', '.join(missing)}; run `make lock`")
    return names


def modules_of(names: Iterable[str]) -> dict[str, str]:
    """A module of each distribution, by which the box's own is found there."""
    found: dict[str, list[str]] = {}
    for module, distributions in metadata.packages_distributions().items():
        for name in distributions:
            found.setdefault(str(canonicalize_name(name)), []).append(module)
    public = {name: [each for each in found.get(name, ()) if not each.startswith("_")] for name in names}
    return {name: min(modules, key=len) for name, modules in public.items() if modules}


def download(entries: Sequence[str], box: Box, folder: Path) -> None:
    """Fetches wheels with pip, from the index or the folders that it knows; hashes must fit.

    Raises:
        ValueError: pip could not.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("\n".join(entries) + "\n")
        file.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary=:all:", "--require-hashes", "--requirement", file.name]
        command += ["--python-version", box.python, "--implementation", "cp", "--dest", str(folder)]
        for tag in box.platforms():
            command += ["--platform", tag]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (pip)
    if done.returncode:
        raise ValueError(f"pip could not fetch the wheels: {done.stderr.strip()[-1000:]}")


def tracked() -> list[str]:
    """The checkout's tracked files that are there."""
    listed = subprocess.run(  # noqa: S603 (git)
        ["git", "-C", str(ROOT), "ls-files", "-z"],  # noqa: S607 (git on PATH)
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    paths = listed.split("\0")
    return [path for path in paths if path and ((ROOT / path).is_symlink() or (ROOT / path).is_file())]


def pack(target: Path, wheels: Path, description: Mapping[str, object]) -> None:
    """Writes the archive; an old one stays until the new one is whole."""
    part = target.with_name(f".{target.name}")
    with tarfile.open(part, "w:xz", preset=PRESET) as archive, tempfile.TemporaryDirectory() as scratch:
        described = Path(scratch, DESCRIPTION)
        described.write_text(json.dumps(description, indent=1, sort_keys=True) + "\n")
        archive.add(described, f"{FOLDER}/{DESCRIPTION}")
        archive.add(box_setup.__file__, f"{FOLDER}/{SETUP}")
        for path in tracked():
            archive.add(ROOT / path, f"{FOLDER}/checkout/{path}", recursive=False)
        for wheel in sorted(wheels.iterdir()):
            archive.add(_plain(wheel, Path(scratch, wheel.name)), f"{FOLDER}/wheels/{wheel.name}")
    part.replace(target)


def _plain(wheel: Path, target: Path) -> Path:
    """The wheel without what is left out, and not compressed: the archive packs all of them better."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as copy:
        for entry in source.infolist():
            if not entry.filename.startswith(LEFT_OUT):
                copy.writestr(entry.filename, source.read(entry))
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the bundle.

    Returns:
        0, or 2 where a wheel cannot be had or an argument is wrong.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.acceptance.bundle", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--python", default="3.12", metavar="X.Y", help="of the box; default: 3.12")
    parser.add_argument("--machine", default=platform.machine(), help="of the box; default: this one's")
    parser.add_argument(
        "--box", type=Path, metavar="FILE", help="names of the packages that the box has, one a line"
    )
    parser.add_argument("--to", type=Path, default=ROOT / "build" / f"{FOLDER}.tar.xz", metavar="FILE")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"3\.\d+", options.python):
        parser.error(f"--python {options.python} given; a version such as 3.12 is needed")
    box = Box(options.python, options.machine)
    try:
        needed = closure([(DISTRIBUTION, extra) for extra in EXTRAS] + [(name, "") for name in PACKAGES], box)
        if options.box is None:
            has = closure([(name, "") for name in IMAGE], box)
        else:
            lines = options.box.read_text().split("\n")
            has = {str(canonicalize_name(re.split(r"[=@ ]", line)[0])) for line in lines if line.strip()}
        lock = locked((ROOT / LOCK).read_text(), box)
        names = selected(needed, has, lock)
        with tempfile.TemporaryDirectory() as scratch:
            download([lock[name] for name in names], box, Path(scratch))
            description = {
                "python": box.python,
                "commit": identity.code()["commit"],
                "version": metadata.version(DISTRIBUTION),
                "of_the_box": modules_of(
                    name for name in needed - set(names) if name in TORCH or not NEVER.fullmatch(name)
                ),
            }
            options.to.parent.mkdir(parents=True, exist_ok=True)
            pack(options.to, Path(scratch), description)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        sys.stderr.write(f"make gpu-bundle: {error}\n")
        return 2
    size = options.to.stat().st_size / 2**20
    sys.stdout.write(
        f"written: {options.to} ({size:.0f} MB, {len(names)} wheels for Python {box.python}). On the box:\n"
        f"  tar -xf {options.to.name} && python3 {FOLDER}/{SETUP}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
