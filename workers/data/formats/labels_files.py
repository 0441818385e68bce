"""Labels of images in a file beside them: the columns name and label, a row an image, for a flat folder."""

from __future__ import annotations

from pathlib import Path

from assay.service.contract.problems import nearest
from assay.service.submission.class_folders import holds_images
from assay.service.submission.class_order import in_order
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.formats.delimited import (
    DELIMITERS,
    header_of,
    is_delimited,
    read_delimited,
    separated_otherwise,
)
from assay.workers.data.formats.folders import check_inside
from assay.workers.data.formats.image_files import ImageFiles, part_of, walk_images

# Columns with the names of files, the first one first; the others are names of well-known exports.
NAMES = ("name", "file_name", "filename", "file", "image")
LABEL = "label"
LISTED = 5


def listed_images(folder: Path, base: Path, labels: str, split: str, splits: str, name: str) -> ImageFiles:
    """The images of a split that a file names, relative to the folder, with or without their suffixes."""
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
    """The file of labels in a folder of images without class folders."""
    if not holds_images(folder):
        return None
    for path in sorted(path for path in folder.iterdir() if is_delimited(path) and path.is_file()):
        try:
            _name_column(path)
        except CorruptData:
            continue
        return path.name
    return None


def _name_column(path: Path) -> str:
    names = header_of(path)
    for wanted in (NAMES[0], LABEL):
        if (other := separated_otherwise(path, names, wanted)) is not None:
            raise CorruptData(other)
    column = next((name for name in NAMES if name in names), None)
    if column is None or LABEL not in names:
        raise CorruptData(
            f"{path} has the columns {', '.join(map(repr, names)) or 'none'}; wanted are {NAMES[0]} (or"
            f" {', '.join(NAMES[1:])}) and {LABEL}"
        )
    return column


def _paths(path: Path, folder: Path, base: Path, given: list[str]) -> list[str]:
    """The file of each name, relative to the folder."""
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
