"""Classes and examples of labelled image folders, by the names of their folders.

Layouts: FOLDER/{train,val,test}/CLASS/... and FOLDER/CLASS/..., without hidden files and what systems leave.
Workers read the images by the same functions, so that the service counts the classes that a worker will find.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Checked
from assay.service.catalog.component import Component
from assay.service.contract.findings.data_findings import Ignored
from assay.service.contract.problems import Loc, Problems
from assay.service.submission.class_order import WrongClasses, in_order, in_stated_order, stated_names
from assay.service.submission.data_folders import (
    IMAGE_SUFFIXES,
    NOT_UTF_8,
    check_folder,
    check_inside,
    is_ignored,
    shown_name,
)
from assay.service.submission.labels_file import LabelsFile, read_labels

SPLIT_FOLDERS = ("train", "val", "test")
MAX_COUNTED = 200_000  # Files counted for an estimate, and seconds for which the count is kept.
COUNT_KEPT = 60
NAMED, LISTED, CLASSES_LISTED = 5, 10, 20  # Names in a message; of what was ignored; of classes.
TABLES = (".csv", ".tsv", ".json", ".jsonl", ".parquet")
# How files of the formats begin that Pillow reads: PNG, JPEG, GIF, BMP, TIFF, WebP, netpbm, JPEG 2000, AVIF.
MARKS = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8|BM|II\*\0|MM\0\*|II\+\0|MM\0\+|RIFF....WEBP|P[1-7fF]\s"
    rb"|\0\0\0\x0cjP  |\xff\x4f\xff\x51|....ftyp",
    re.DOTALL,
)
LABELS_FILE = (  # The remedy for images without class folders.
    "for images without class folders give the parameter labels the name of a file in the folder with the"
    ' columns name and label: "labels": "labels.csv"'
)
HELD_OUT_DIVISOR = 5  # Without parts, the share of each class that is evaluated.


@dataclass(frozen=True)
class Skipped:
    """How many files are skipped, the commonest suffixes with their numbers, and the first names."""

    count: int
    kinds: Mapping[str, int]
    first: Sequence[str]


def check_labelled(data: Checked, root: Path | None, problems: Problems, loc: Loc) -> None:
    """Report a labelled folder that has no images in class folders, or not the stated classes."""
    listed = _labels_file(data.component, data.params, root) if data.certain else None
    for fault in listed.faults if listed is not None else ():
        problems.add((*loc, "params", "labels"), fault, given=data.params["labels"])
    labelled = _labelled_folder(data.component, data.params, root)
    if labelled is None or not data.certain:
        return
    (folder, base), given = labelled, data.params["folder"]
    where: Loc = (*loc, "params", "folder")
    try:
        parts = split_folders(folder, base)
        odd = _not_utf_8(folder, tuple(parts), int(time.monotonic() // COUNT_KEPT))
        if unnamed := [shown_name(name) for name in odd if os.path.lexists(folder / name)]:
            shown = ", ".join(unnamed[:LISTED]) + (", ..." if len(unnamed) > LISTED else "")
            problems.add(where, f"has names that are not UTF-8: {shown}; rename them", given=given)
            return
        names = class_folders(folder / parts[0] if parts else folder, base)
        seen = any(_count_images(folder / part / name)[0] for part in parts or [""] for name in names)
        files = sorted(entry.name for entry in folder.iterdir() if entry.is_file())[:NAMED]
    except WrongClasses as error:
        problems.add(where, str(error), given=given)
        return
    except (OSError, ValueError):  # the worker says what is wrong with it
        return
    if seen and (parts or len(names) > 1):
        _check_stated(data, folder, base, names, problems, loc)
        return
    there = ", ".join([*(f"{name}/" for name in names[:NAMED]), *files]) or "nothing"
    message = (
        "images are wanted in folders of at least 2 classes, as CLASS/IMAGE or {train,val,test}/CLASS/IMAGE;"
        f" it has {there}" + ("; its class folders have no images" if names and not seen else "")
    )
    if any(name.lower().endswith(IMAGE_SUFFIXES) for name in files):
        message += f"; {LABELS_FILE}"
    if any(name.lower().endswith(TABLES) for name in files):
        message += "; for a table, name the data set that reads it"
    problems.add(where, message, given=given)


@lru_cache(maxsize=64)
def _not_utf_8(folder: Path, parts: tuple[str, ...], _minute: int) -> list[str]:
    """Visible folders and images with such names, among the first 200,000 files of a folder or its parts."""
    found: list[str] = []
    seen = 0
    for place, folders, files in chain.from_iterable(os.walk(folder / part) for part in parts or [""]):
        images = (name for name in files if name.lower().endswith(IMAGE_SUFFIXES))
        odd = [name for name in (*folders, *images) if NOT_UTF_8.search(name) and not is_ignored(name)]
        folders[:] = [name for name in folders if name not in odd and not is_ignored(name)]
        found += [os.path.relpath(os.path.join(place, name), folder) for name in odd]
        seen += len(files)
        if seen > MAX_COUNTED:
            break
    return sorted(found)


def _check_stated(
    data: Checked, folder: Path, base: Path, names: list[str], problems: Problems, loc: Loc
) -> None:
    class_names, class_names_file = (data.params.get(key) for key in ("class_names", "class_names_file"))
    field = "class_names" if class_names_file is None else "class_names_file"
    try:
        stated = stated_names(folder, base, class_names, class_names_file)
        if stated is not None:
            in_stated_order(stated, names, f"the folder {data.params['folder']!r}", "class folder")
    except WrongClasses as error:
        problems.add(
            (*loc, "params", field), str(error), given=data.params[field], allowed=names[:CLASSES_LISTED]
        )
    except (OSError, ValueError):  # the worker says what is wrong with it
        return


def describe_classes(data: Checked, root: Path | None) -> str | None:
    """The class folders of data, and those without an image; None as for `count_classes`."""
    if (found := _labelled_folder(data.component, data.params, root)) is None:
        return None
    folder, base = found
    try:
        parts, names = split_folders(folder, base), list_classes(data, root) or []
        empty = [name for name in names if not any(has_images(folder / p / name) for p in parts or [""])]
    except (OSError, ValueError):  # the worker says what is wrong with it
        return None
    shown = ", ".join(f"{name}/" for name in names[:CLASSES_LISTED]) + (
        ", ..." if len(names) > CLASSES_LISTED else ""
    )
    if not empty:
        return shown
    more = ", ..." if len(empty) > CLASSES_LISTED else ""
    return f"{shown}; without an image: {', '.join(f'{name}/' for name in empty[:CLASSES_LISTED])}{more}"


def count_classes(data: Checked, root: Path | None) -> int | None:
    """Number of classes of data with folders as classes; None for other data, or for unseen folders."""
    names = list_classes(data, root)
    return len(names) if names else None


def list_classes(data: Checked, root: Path | None) -> list[str] | None:
    """The names of these classes in order; None as for `count_classes`."""
    if (listed := _labels_file(data.component, data.params, root)) is not None:
        return listed.classes
    if (found := _labelled_folder(data.component, data.params, root)) is None:
        return None
    folder, base = found
    try:
        parts = split_folders(folder, base)
        return class_folders(folder / parts[0] if parts else folder, base)
    except (OSError, ValueError):  # the worker says what is wrong with it
        return None


def count_examples(component: Component, params: Mapping[str, Any], root: Path | None) -> int | None:
    """Images of a labelled folder, for estimates, a minute old at most; None: unseen, or above 200,000."""
    if (listed := _labels_file(component, params, root)) is not None:
        every = Counter(listed.labels).values() if params.get("splits") != "all" else ()
        return sum(map(_held_out, every)) or len(listed.labels) or None
    if (found := _labelled_folder(component, params, root)) is None:
        return None
    return _count(*found, params.get("splits") == "all", int(time.monotonic() // COUNT_KEPT))


def _held_out(images: int) -> int:
    """How many images of a class are evaluated in a folder without parts."""
    return max(images // HELD_OUT_DIVISOR, min(images - 1, 1), 0)


def images_of(component: Component, params: Mapping[str, Any], root: Path | None) -> Iterator[Path]:
    """The image files of a labelled folder that may be evaluated; nothing where it is unseen."""
    if (listed := _labels_file(component, params, root)) is not None and root is not None:
        yield from (root / params["folder"] / image for image in listed.images)
    elif (found := _labelled_folder(component, params, root)) is not None:
        folder, base = found
        parts = split_folders(folder, base)
        chosen = (
            parts if params.get("splits") == "all" else [one for one in ("val", "test") if one in parts][:1]
        )
        for part in chosen or [""]:
            for place, folders, files in os.walk(folder / part):
                folders[:] = sorted(name for name in folders if not is_ignored(name))
                images = (name for name in sorted(files) if name.lower().endswith(IMAGE_SUFFIXES))
                yield from (Path(place, name) for name in images if not is_ignored(name))


def _labels_file(component: Component, params: Mapping[str, Any], root: Path | None) -> LabelsFile | None:
    """The file that has the labels of a folder, a second old at most; None: there is no such file here."""
    name = params.get("labels")
    unlabelled = {key: value for key, value in params.items() if key != "labels"}
    if not isinstance(name, str) or (found := _labelled_folder(component, unlabelled, root)) is None:
        return None
    return _read_labels(*found, name, int(time.monotonic()))


@lru_cache(maxsize=8)
def _read_labels(folder: Path, base: Path, name: str, _second: int) -> LabelsFile | None:
    return read_labels(folder, base, name)


def _labelled_folder(
    component: Component, params: Mapping[str, Any], root: Path | None
) -> tuple[Path, Path] | None:
    """The folder of data with folders as classes, and the resolved root, where they can be seen."""
    name = params.get("folder")
    if not (component.facts or {}).get("class_folders") or root is None or not isinstance(name, str):
        return None
    if params.get("labels") is not None:  # a file has them
        return None
    if not root.is_dir() or check_folder(name, root) is not None:
        return None
    return root.resolve() / name, root.resolve()


@lru_cache(maxsize=64)
def _count(folder: Path, base: Path, whole: bool, _minute: int) -> int | None:
    seen, found = 0, 0
    try:
        parts = split_folders(folder, base)
        evaluated = [part for part in ("val", "test") if part in parts][:1]
        for part in (parts if whole else evaluated) if parts else [""]:
            for name in class_folders(folder / part, base):
                images, files = _count_images(folder / part / name)
                seen += files
                if seen > MAX_COUNTED:
                    return None
                found += images if parts or whole else _held_out(images)
    except (OSError, ValueError):  # the worker says what is wrong with it
        return None
    return found or None


def has_images(folder: Path) -> bool:
    """Whether an image file is in a folder or below it."""
    return any(
        not is_ignored(name) and name.lower().endswith(IMAGE_SUFFIXES)
        for _, _, files in os.walk(folder)
        for name in files
    )


def _count_images(folder: Path) -> tuple[int, int]:
    """Visible images below a class folder, and files looked at."""
    images, seen = 0, 0
    for _, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_ignored(name)]
        images += sum(not is_ignored(name) and name.lower().endswith(IMAGE_SUFFIXES) for name in files)
        seen += len(files)
        if seen > MAX_COUNTED:
            break
    return images, seen


def no_images(paths: Iterable[Path], seconds: float = 2.0) -> list[tuple[Path, str]]:
    """The files of these that hold no image, and why; files that come after so many seconds are not read."""
    until, found = time.monotonic() + seconds, []
    for path in paths:
        if time.monotonic() > until:
            break
        try:
            with path.open("rb") as file:
                begins = file.read(16)
        except OSError as error:
            found.append((path, error.strerror or "it cannot be read"))
            continue
        if MARKS.match(begins) is None:
            found.append((path, "it holds no image" if begins else "it is empty"))
    return found


def ignored_in(folder: Path) -> Ignored:
    """Files and folders below a folder of images that are no images or are not looked at, at most 200,000."""
    found: list[str] = []
    seen = 0
    for place, folders, files in os.walk(folder):
        seen += len(files)
        hidden = [name for name in folders if is_ignored(name)]
        folders[:] = sorted(name for name in folders if not is_ignored(name))
        others = [name for name in files if is_ignored(name) or not name.lower().endswith(IMAGE_SUFFIXES)]
        base = Path(place).relative_to(folder)
        found += [(base / name).as_posix() + "/" for name in hidden]
        found += [(base / name).as_posix() for name in others]
        if seen > MAX_COUNTED:
            break
    return {"count": len(found), "first": [shown_name(name) for name in sorted(found)[:LISTED]]}


def skipped_in(component: Component, params: Mapping[str, Any], root: Path | None) -> Skipped | None:
    """Files of a labelled folder that are no images by their names, a minute old; None: unseen, or without.

    What systems leave does not count; at most 200,000 files are looked at.
    """
    if (found := _labelled_folder(component, params, root)) is None:
        return None
    return _skipped(found[0], int(time.monotonic() // COUNT_KEPT))


@lru_cache(maxsize=64)
def _skipped(folder: Path, _minute: int) -> Skipped | None:
    found: list[str] = []
    seen = 0
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not is_ignored(name)]
        others = [name for name in files if not (is_ignored(name) or name.lower().endswith(IMAGE_SUFFIXES))]
        found += [(Path(place).relative_to(folder) / name).as_posix() for name in others]
        seen += len(files)
        if seen > MAX_COUNTED:
            break
    kinds = Counter(Path(name).suffix.lower() or "without a suffix" for name in found)
    listed = [shown_name(name) for name in sorted(found)[:NAMED]]
    return Skipped(len(found), dict(kinds.most_common(NAMED)), listed) if found else None


def split_folders(folder: Path, base: Path) -> list[str]:
    """Split folders with class folders; the first names the classes, and ImageNet's `test` does not count."""
    found = [part for part in SPLIT_FOLDERS if (folder / part).is_dir()]
    return [part for part in found if not holds_images(folder / part) and class_folders(folder / part, base)]


def class_folders(folder: Path, base: Path) -> list[str]:
    """Names of the visible folders in the order of classes; WrongClasses for two of the same number."""
    return in_order(visible_folders(folder, base))


def visible_folders(folder: Path, base: Path) -> list[str]:
    """Sorted names of the folders that are data."""
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_ignored(entry.name) and entry.is_dir():
                if entry.is_symlink():
                    check_inside(Path(entry.path), base)
                names.append(entry.name)
    return sorted(names)


def holds_images(folder: Path) -> bool:
    """Whether the folder itself contains image files."""
    with os.scandir(folder) as entries:
        return any(is_image(entry) for entry in entries)


def is_image(entry: os.DirEntry[str]) -> bool:
    """Whether it is a visible file with an image suffix."""
    return not is_ignored(entry.name) and entry.name.lower().endswith(IMAGE_SUFFIXES) and entry.is_file()
