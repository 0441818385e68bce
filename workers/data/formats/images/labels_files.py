"""Labels of images in a file beside them: the columns name and label, a row an image."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from assay.service.contract.problems import nearest
from assay.service.submission.class_folders import holds_images, is_image
from assay.service.submission.class_order import in_order
from assay.service.submission.data_folders import IMAGE_SUFFIXES
from assay.service.submission.labels_file import LABEL, NAMES
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.delimited import (
    DELIMITERS,
    first_row,
    is_delimited,
    read_delimited,
    separated_otherwise,
)
from assay.workers.data.formats.folders import check_inside
from assay.workers.data.formats.images.image_files import ImageFiles, part_of, walk_images
from assay.workers.data.formats.text_files import content_lines

# Other programs' names of the columns.
SYNONYMS = {
    LABEL: ("class", "class_name", "category", "target", "species"),
    NAMES[0]: ("id", "image_id", "path", "file_path"),
}
LISTED = 5
# Lines looked at for names of images, and what may be between cells.
LOOKED_AT, BETWEEN = 20, re.compile(r"[,;\t|]")


def listed_images(folder: Path, base: Path, labels: str, split: str, splits: str, name: str) -> ImageFiles:
    """A split's images that a file names, relative to the folder, with or without suffixes."""
    path = folder / labels
    if set(labels) & set("/\\\0") or labels.startswith("."):
        raise ValueError(f"labels {labels!r} is no name of a file in the folder, such as labels.csv")
    if not is_delimited(path):
        raise CorruptData(f"labels {labels!r} is no CSV or TSV file; allowed: {', '.join(DELIMITERS)}")
    if not path.is_file():
        there = sorted(one.name for one in folder.iterdir() if is_delimited(one))
        near = nearest(labels, there)
        guess = f" Did you mean {near!r}?" if near else ""
        raise MissingData(f"{path} is wanted, which has the labels of the images beside it.{guess}")
    check_inside(path, base)
    column = _name_column(path)
    cells = read_delimited(path, (column, LABEL)).columns
    found = _paths(path, folder, base, cells[column])
    given = [label.strip() for label in cells[LABEL]]
    if "" in given:
        raise CorruptData(f"{path}: {cells[column][given.index('')]!r} has no label")
    classes = in_order(set(given))
    if len(classes) < 2:
        raise CorruptData(f"{path} has {len(classes)} different labels, at least 2 are needed")
    numbers = {one: number for number, one in enumerate(classes)}
    rows = sorted(zip(found, (numbers[label] for label in given), strict=True))
    every = ImageFiles(tuple(classes), [image for image, _ in rows], [label for _, label in rows])
    return part_of(every, folder, split, splits, name)


def find_labels(folder: Path) -> str | None:
    """The file that is, or is meant as, labels of a folder of images without class folders."""
    if not holds_images(folder):
        return None
    paths = sorted(path for path in folder.iterdir() if is_delimited(path) and path.is_file())
    return next((path.name for meant in (_has_columns, _lists_images) for path in paths if meant(path)), None)


def _has_columns(path: Path) -> bool:
    try:
        return bool(_name_column(path))
    except CorruptData:
        return False


def _lists_images(path: Path) -> bool:
    if LABEL in path.stem.lower():
        return True
    with os.scandir(path.parent) as entries:
        images = {entry.name for entry in entries if is_image(entry)}
    images |= {name.rsplit(".", 1)[0] for name in images}
    try:
        lines = content_lines(path)[:LOOKED_AT]
        return "text" not in first_row(path)[1] and any(images & {*_split(line)} for line in lines)
    except CorruptData:
        return False


def _name_column(path: Path) -> str:
    line, names = first_row(path)
    column = next((name for name in NAMES if name in names), None)
    if column is not None and LABEL in names:
        return column
    wanted = f"wanted are {NAMES[0]} (or {', '.join(NAMES[1:])}) and {LABEL}{_guess(names)}"
    shown = ", ".join(map(repr, names[:LISTED])) or "none"
    if len(names) == 1 and (other := separated_otherwise(path, names, None)) is not None:
        raise CorruptData(f"{other}; line {line} is {shown}, {wanted}")
    raise CorruptData(f"{path} line {line} has the columns {shown}; {wanted}")


def _guess(names: Sequence[str]) -> str:
    cells = _split(names[0]) if len(names) == 1 else names[:LISTED]
    if any(name.lower().endswith(IMAGE_SUFFIXES) for name in cells):
        return ". That is an image, not the names of columns: put a line with them before it"
    near = {name: nearest(name, (*NAMES, LABEL), SYNONYMS) for name in cells}
    renamed = [f"{known!r} for {name!r}" for name, known in near.items() if known not in (None, name)]
    return f". Did you mean {', '.join(renamed)}?" if renamed else ""


def _split(line: str) -> list[str]:
    return [cell.strip(' "') for cell in BETWEEN.split(line)]


def _paths(path: Path, folder: Path, base: Path, given: list[str]) -> list[str]:
    there = [image.removeprefix("./") for image in walk_images(folder, base, ".")]
    by_name = {**{image.rsplit(".", 1)[0]: image for image in there}, **{image: image for image in there}}
    missing = [name for name in given if name.strip() not in by_name]
    if missing:
        shown = ", ".join(missing[:LISTED]) + (", ..." if len(missing) > LISTED else "")
        raise MissingData(
            f"{path} names {len(missing)} of {len(given)} images that are not beside it: {shown}"
        )
    found = [by_name[name.strip()] for name in given]
    if len(set(found)) < len(found):
        seen: set[str] = set()
        twice = next(image for image in found if image in seen or seen.add(image))  # type: ignore[func-returns-value]
        raise CorruptData(f"{path} names {twice!r} twice; an image has one label")
    return found
