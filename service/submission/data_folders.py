"""Names of folders and files from clients: names under the data root, never paths out of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.service.catalog.catalog import Catalog, Checked
from assay.service.catalog.component import Component
from assay.service.contract.problems import Loc, Problems, nearest
from assay.service.contract.stored_specs import Params

MAX_LENGTH = 1024
KINDS: tuple[Literal["folder", "file_name"], ...] = ("folder", "file_name")  # as schemas mark parameters
MAX_LISTED = 50
FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.(csv|tsv))?")
# Suffixes of image file names, in lower case.
IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
NOT_UTF_8 = re.compile("[\ud800-\udfff]")  # What Python has for such bytes in a name.
LEFT_BEHIND = frozenset(  # What systems and archives leave, beside names with a dot; in lower case.
    {"__macosx", "@eadir", "thumbs.db", "ehthumbs.db", "desktop.ini", "icon\r", "$recycle.bin"}
    | {"system volume information"}
)


@dataclass(frozen=True)
class FolderProblem:
    """Why a folder name is refused, the allowed names, and the nearest existing folder."""

    message: str
    allowed: list[str] | str | None = None
    nearest: str | None = None


def check_folder(
    name: str, root: Path | None, *, must_exist: bool = True, local: bool = False
) -> FolderProblem | None:
    """The error of a folder name, or None; without a visible root only the name itself is checked."""
    if (problem := _check_name(name)) is not None:
        return problem
    if root is None or not root.is_dir():
        return _missing_root(root) if local else None
    try:
        place, inside = (root / name).resolve(), root.resolve()
        if not place.is_relative_to(inside):
            return FolderProblem("leads out of the data root through a symbolic link")
        if place.is_dir():
            return None
        if place.exists():
            return FolderProblem("is a file, not a folder", *_known(root, name))
    except (OSError, RuntimeError, ValueError):
        return FolderProblem("cannot be read under the data root")
    if not must_exist:
        return None
    return FolderProblem(f"there is no folder {name!r} under the data root", *_known(root, name))


def name_roots(text: str, roots: Mapping[str, Path | None]) -> str:
    """A text for users: paths below roots, or links' targets, begin with the name of the root's variable."""
    for name, root in roots.items():
        if root is not None and root.is_absolute() and root.parent != root:
            for place in sorted({str(root), os.path.realpath(root)} - {root.anchor}, key=len, reverse=True):
                text = re.sub(rf"{re.escape(place)}(?![\w-])", f"${name}", text)
    return text


def _missing_root(root: Path | None) -> FolderProblem:
    state = "is not set" if root is None else "names no folder"
    message = f"the service and its workers have no data root: ASSAY_DATA_ROOT {state}"
    return FolderProblem(
        message, "data that need no folder, or this one once ASSAY_DATA_ROOT names its parent"
    )


def check_file_name(name: str) -> FolderProblem | None:
    """The error of a name of a file or folder, which must be no path; or None."""
    problem = _check_name(name)
    if problem is None and FILE_NAME.fullmatch(name) is not None:
        return None
    message = (
        "must be a single name of letters, digits, hyphens and underscores, of a table with .csv or .tsv"
    )
    allowed = "a name such as JapaneseVowels or labels.csv"
    return FolderProblem(problem.message if problem else message, allowed)


def check_folders(
    catalog: Catalog,
    data: Checked,
    root: Path | None,
    problems: Problems,
    loc: Loc,
    hint: str = "",
    *,
    local: bool = False,
) -> None:
    """Report folders that are missing or not below the data root, and paths where one name is wanted."""
    for place, name, kind, downloads in named_places(catalog, data.component, data.params):
        if kind == "folder":
            problem = check_folder(name, root, must_exist=not downloads, local=local)
        else:
            problem = check_file_name(name)
        if problem is not None:
            problems.add(
                (*loc, *place),
                f"{problem.message}{hint}",
                given=name,
                allowed=problem.allowed,
                nearest=problem.nearest,
            )


def named_places(
    catalog: Catalog, component: Component, params: Params
) -> Iterator[tuple[Loc, str, Literal["folder", "file_name"], bool]]:
    """The folders and files that a component and its parts name: place, name, kind, whether downloadable."""
    for parameter, schema in component.parameters["properties"].items():
        name, branches = params.get(parameter), schema.get("anyOf", [schema])
        kinds = [kind for kind in KINDS if any(branch.get(kind, False) for branch in branches)]
        if kinds and isinstance(name, str):
            yield ("params", parameter), name, kinds[0], params.get("download") is True
    for parameter, part, reference in component.references(params):
        if reference["name"] in catalog.names(part):
            nested = catalog.find(part, reference["name"])
            for place, name, kind, downloads in named_places(catalog, nested, reference["params"]):
                yield ("params", parameter, *place), name, kind, downloads


def is_ignored(name: str) -> bool:
    """Whether a file or folder is no part of the data: hidden, or left behind by a system or an archive."""
    return name.startswith(".") or name.lower() in LEFT_BEHIND


def shown_name(name: str) -> str:
    r"""A file's name with `\xff` for a byte that is not UTF-8."""
    return re.sub("[\udc80-\udcff]", lambda byte: rf"\x{ord(byte[0]) - 0xDC00:x}", name)


def check_inside(path: Path, base: Path) -> None:
    """Refuse a file or folder with a real place outside the resolved root."""
    # os.path.realpath, since Path.resolve raises RuntimeError for links that form a loop.
    if not Path(os.path.realpath(path)).is_relative_to(base):
        raise ValueError(f"{path} leads out of the data root {base} through a symbolic link")


def _check_name(name: str) -> FolderProblem | None:
    allowed = "a name relative to the data root, such as imagenet/val"
    if not name or len(name) > MAX_LENGTH:
        return FolderProblem(f"must have 1 to {MAX_LENGTH} characters", allowed)
    if "\\" in name or any(ord(character) < 32 for character in name):
        return FolderProblem("must not contain backslashes or control characters", allowed)
    if name.startswith(("/", "~")) or name[1:2] == ":":
        message = (
            "must be relative to the data root, not an absolute path: set ASSAY_DATA_ROOT (or --data-root of"
            " `assay serve`) to a directory above the folder, and name the rest (docs/data.md)"
        )
        return FolderProblem(message, allowed)
    if any(part in ("", ".", "..") for part in name.rstrip("/").split("/")):
        inside = os.path.normpath(name)
        near = None if inside.startswith(".") else inside
        return FolderProblem('must not contain "..", "." or empty parts', allowed, near)
    return None


def _known(root: Path, name: str) -> tuple[list[str] | None, str | None]:
    parent = (root / name).parent
    if not parent.resolve().is_relative_to(root.resolve()) or not parent.is_dir():
        return _known(root, parent.relative_to(root).as_posix()) if parent != root else (None, None)
    folders = sorted(
        path.relative_to(root).as_posix()
        for path in parent.iterdir()
        if path.is_dir() and not is_ignored(path.name)
    )
    return folders[:MAX_LISTED], nearest(name, folders)
