"""Packages as an installer leaves them: sources, and metadata with entry points, in a folder for sys.path."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "adding.md"
EVERY_KIND = ROOT / "tests" / "support" / "every_kind"
FILE = re.compile(r"^`([a-z_/]+\.(?:py|toml))`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
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


def files_of_the_page() -> dict[str, str]:
    """The files that docs/adding.md shows or links to, below docs/adding: path to content."""
    folder = PAGE.with_suffix("")
    linked = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*.py"))}
    return {**dict(FILE.findall(PAGE.read_text())), **linked}


def install_every_kind(folder: Path) -> None:
    """The package of docs/adding.md with one component of every kind.

    The components are the page's; those of `every_kind` are of the kinds that the page has no code of, and an
    attack that is weak on purpose.
    """
    page = files_of_the_page()
    project = tomllib.loads(page["pyproject.toml"])["project"]
    name, version = project["name"], project["version"]
    own = {
        path.removeprefix(f"{name}/").removesuffix(".py").replace("/", "__"): source
        for path, source in page.items()
        if path.startswith(f"{name}/")
    }
    install(
        folder,
        name,
        version,
        project["entry-points"][GROUP],
        assay__attack__mifgsm=page["attacks/adversarial/mifgsm.py"],
        assay__attack__downhill=(EVERY_KIND / "attack.py").read_text(),
        assay__attention=page["models/attention/cosine.py"],
        assay__corruption=page["attacks/corruptions/posterize.py"],
        assay__data__stripes=page["workers/data/stripes.py"],
        assay__data__dots=(EVERY_KIND / "dots.py").read_text(),
        assay__evaluation__mirrored=page["workers/evaluation/mirrored.py"],
        assay__model=page["models/mlp.py"],
        assay__recipe=(EVERY_KIND / "recipe.py").read_text(),
        assay__suite=(EVERY_KIND / "suite.py").read_text(),
        assay__words=(EVERY_KIND / "words.py").read_text(),
        **own,
    )
