"""Packages as an installer leaves them: sources, and metadata with entry points, in a folder for sys.path."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding.md"
GROUP = "assay.components"


def install(folder: Path, name: str, version: str, points: Mapping[str, str], **files: str) -> None:
    """Write a package.

    Args:
        folder: where; it may have others.
        name: of the package and of its metadata.
        version: its version.
        points: entry points of the group.
        files: path below the package, with "__" for "/", to the source; every folder gets an `__init__.py`.
    """
    for path, source in files.items():
        file = folder / name / f"{path.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    for inner in [folder / name, *(path for path in (folder / name).rglob("*") if path.is_dir())]:
        (inner / "__init__.py").touch()
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [f"{point} = {value}" for point, value in points.items()]
    (metadata / "entry_points.txt").write_text("\n".join([f"[{GROUP}]", *lines, ""]))


def install_the_page_s(folder: Path) -> None:
    """The package of docs/adding.md, from the sources and the pyproject.toml of the page."""
    text = PAGE.read_text()
    blocks = dict(
        re.findall(r"^`([a-z_/]+\.(?:py|toml))`:\n\n```\w+\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    )
    project = tomllib.loads(blocks["pyproject.toml"])["project"]
    install(
        folder,
        project["name"],
        project["version"],
        project["entry-points"][GROUP],
        assay__attack__mifgsm=blocks["attacks/adversarial/mifgsm.py"],
        assay__attention=blocks["models/attention/cosine.py"],
    )
