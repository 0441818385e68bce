"""Labels of images in a file beside them, as far as they are judged before a job: no pixel is read here."""

from __future__ import annotations

import csv
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from assay.service.contract.problems import nearest
from assay.service.submission.class_order import WrongClasses, in_order
from assay.service.submission.data_folders import IMAGE_SUFFIXES, check_inside, is_ignored

# Columns of file names, first ours, then those of well-known exports.
NAMES = ("name", "file_name", "filename", "file", "image")
LABEL = "label"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
MAX_BYTES = 64 * 2**20  # of a file that is read here
NAMED = 5  # in a message


@dataclass(frozen=True)
class LabelsFile:
    """Images below the folder and their labels, row by row, and all that is wrong with the file."""

    images: Sequence[str] = ()
    labels: Sequence[str] = ()
    faults: Sequence[str] = ()

    @property
    def classes(self) -> list[str] | None:
        """The labels in the order of classes; None for a file with faults."""
        return None if self.faults else in_order(set(self.labels))


def read_labels(folder: Path, base: Path, name: str) -> LabelsFile | None:
    """The file of this name in a folder; None where it is for the worker to judge.

    `base` is the resolved data root.
    """
    path = folder / name
    if Path(name).name != name or path.suffix.lower() not in DELIMITERS:
        return None
    try:
        if not path.is_file():
            there = sorted(one.name for one in folder.iterdir() if one.suffix.lower() in DELIMITERS)
            near = nearest(name, there)
            return LabelsFile(
                faults=["there is no such file" + (f"; did you mean {near!r}?" if near else "")]
            )
        check_inside(path, base)
        if path.stat().st_size > MAX_BYTES:
            return None
        rows = _rows(path)
        return None if rows is None else _judged(rows, _images(folder))
    except (OSError, ValueError, csv.Error):  # the worker says what is wrong with it
        return None


def _rows(path: Path) -> list[tuple[str, str]] | None:
    with path.open(encoding="utf-8-sig", newline="") as file:
        ending = path.suffix.lower()
        lines = csv.reader(
            file,
            delimiter=DELIMITERS[ending],
            quoting=csv.QUOTE_NONE if ending == ".tsv" else csv.QUOTE_MINIMAL,
            strict=True,
        )
        rows = [row for row in lines if row]
    header = rows[0] if rows else []
    column = next((one for one in NAMES if one in header), None)
    if column is None or LABEL not in header or any(len(row) != len(header) for row in rows):
        return None
    places = header.index(column), header.index(LABEL)
    return [(row[places[0]].strip(), row[places[1]].strip()) for row in rows[1:]]


def _images(folder: Path) -> dict[str, str]:
    """Images below the folder by their paths, with and without suffixes."""
    found = {}
    for place, folders, files in os.walk(folder):
        folders[:] = sorted(one for one in folders if not is_ignored(one))
        for name in files:
            if not is_ignored(name) and name.lower().endswith(IMAGE_SUFFIXES):
                image = (Path(place).relative_to(folder) / name).as_posix()
                found[image.rsplit(".", 1)[0]] = found[image] = image
    return found


def _judged(rows: Sequence[tuple[str, str]], there: dict[str, str]) -> LabelsFile:
    images = [there[name] for name, _ in rows if name in there]
    labels = {label for _, label in rows if label}
    listed = {
        "of its images are not beside it": [name for name, _ in rows if name not in there],
        "of its images have no label": [name for name, label in rows if not label],
        "of its images stand in it more than once": [one for one, n in Counter(images).items() if n > 1],
    }
    faults = [f"{len(names)} {what}: {_some(names)}" for what, names in listed.items() if names]
    if len(labels) < 2:
        faults.append(f"it has {len(labels)} different labels, at least 2 are needed")
    try:
        in_order(labels)
    except WrongClasses as error:
        faults.append(str(error))
    return LabelsFile(images, [label for _, label in rows], faults)


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
