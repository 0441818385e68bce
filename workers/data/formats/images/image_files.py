"""Image files of a folder of classes, and their splits.

Layouts: FOLDER/{train,val,test}/CLASS/... (ImageNet) and FOLDER/CLASS/.... Class folders may nest; hidden
files, leftovers of systems and other suffixes are ignored.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.service.submission.class_folders import (
    LABELS_FILE,
    SPLIT_FOLDERS,
    class_folders,
    holds_images,
    is_image,
    split_folders,
)
from assay.service.submission.data_folders import IMAGE_SUFFIXES, is_ignored
from assay.workers.data.formats.dataset import CorruptData, MissingData, utf_8
from assay.workers.data.formats.folders import check_inside
from assay.workers.data.formats.sampling import held_out_split


@dataclass(frozen=True)
class ImageFiles:
    """A split's files, sorted by id; labels index `class_names`. Without `paths` ids are the paths.

    `divided_from` counts the files that a hash divided into training and evaluation.
    """

    class_names: tuple[str, ...]
    ids: list[str]
    labels: list[int]
    paths: list[str] | None = None
    divided_from: int | None = None


def find_images(
    folder: Path, base: Path, split: Literal["train", "test"], splits: Literal["auto", "all"], name: str
) -> ImageFiles:
    """Image files of a split.

    With split folders, "train" is `train` and "test" is `val`, else `test`; otherwise the classes are split
    80/20 by the hash of the path (`held_out_split`). `splits="all"` takes every file.
    """
    present = _split_folders(folder, base)
    if not present:
        return _labelled_folder(folder, base, split, splits, name)
    evaluated = next((part for part in ("val", "test") if part in present), None)
    parts = {"train": "train" if "train" in present else None, "test": evaluated}
    chosen = present if splits == "all" else [part for part in (parts[split],) if part is not None]
    if not chosen:
        wanted = "train" if split == "train" else "val (or test)"
        raise MissingData(
            f"The {split} images of {folder} are wanted, but of the split folders it has only "
            f"{', '.join(present)}. Put them in {folder}/{wanted}/CLASS/, "
            f'or set "splits": "all" to take every image that is there.'
        )
    return _collect(folder, base, chosen, _class_names(folder, base, present, evaluated, splits))


def _labelled_folder(folder: Path, base: Path, split: str, splits: str, name: str) -> ImageFiles:
    names = class_folders(folder, base)
    if len(names) < 2:
        raise MissingData(
            f"Labelled images are wanted in {folder}, as CLASS/IMAGE with at least 2 class folders or as "
            f"{{train,val,test}}/CLASS/IMAGE; its folders are: {', '.join(names) or 'none'}."
            + (f" It has images beside them: {LABELS_FILE}." if holds_images(folder) else "")
        )
    return part_of(_collect(folder, base, [""], tuple(names)), folder, split, splits, name)


def part_of(every: ImageFiles, folder: Path, split: str, splits: str, name: str) -> ImageFiles:
    """A split by hash, or all files."""
    if splits == "all":
        return every
    train, test = held_out_split(name, every.ids, every.labels)
    chosen = train if split == "train" else test
    if not chosen:
        raise MissingData(
            f"The {split} images of {folder} are wanted, but every class has a single image, which is "
            f'trained on. Add images, or set "splits": "all" to take every image.'
        )
    ids, labels = [every.ids[index] for index in chosen], [every.labels[index] for index in chosen]
    return ImageFiles(every.class_names, ids, labels, divided_from=len(every.ids))


def _split_folders(folder: Path, base: Path) -> list[str]:
    good = split_folders(folder, base)
    flat = [part for part in SPLIT_FOLDERS if (folder / part).is_dir() and holds_images(folder / part)]
    if not good and len(flat) > 1:
        raise CorruptData(
            f"{folder} has images directly in {' and '.join(flat)}; each image must lie in the folder of "
            f"its class: {flat[0]}/CLASS/IMAGE."
        )
    if not good:
        return []
    others = [n for n in class_folders(folder, base) if n not in SPLIT_FOLDERS and holds_images(folder / n)]
    if others:
        raise CorruptData(
            f"{folder} has both split folders ({', '.join(good)}) and class folders "
            f"({', '.join(others[:5])}); keep one kind only, so that it is clear what is evaluated."
        )
    return good


def _class_names(
    folder: Path, base: Path, present: list[str], evaluated: str | None, splits: str
) -> tuple[str, ...]:
    reference = "train" if "train" in present else evaluated
    assert reference is not None
    names = class_folders(folder / reference, base)
    for part in present if splits == "all" else [p for p in (evaluated,) if p]:
        unknown = sorted(set(class_folders(folder / part, base)) - set(names))
        if unknown:
            raise CorruptData(
                f"{folder / part} has class folders that {reference} lacks: {', '.join(unknown[:5])}"
                f"{' and more' if len(unknown) > 5 else ''}; the labels would not agree."
            )
    return tuple(names)


def _collect(folder: Path, base: Path, parts: list[str], class_names: tuple[str, ...]) -> ImageFiles:
    found: list[tuple[str, int]] = []
    for part in parts:
        for label, class_name in enumerate(class_names):
            prefix = f"{part}/{class_name}" if part else class_name
            if (folder / prefix).is_dir():
                found.extend((utf_8(path), label) for path in walk_images(folder / prefix, base, prefix))
    if not found:
        raise MissingData(
            f"Images are wanted in {folder / parts[0]}, but its {len(class_names)} class folders hold none "
            f"with a suffix among {', '.join(IMAGE_SUFFIXES)}."
        )
    found.sort()
    return ImageFiles(class_names, [path for path, _ in found], [label for _, label in found])


def walk_images(folder: Path, base: Path, prefix: str) -> Iterator[str]:
    """Paths of image files below a class folder, with `prefix`, unordered."""
    with os.scandir(folder) as entries:
        for entry in entries:
            path = f"{prefix}/{entry.name}"
            if is_image(entry):
                if entry.is_symlink():
                    check_inside(Path(entry.path), base)
                yield path
            elif entry.is_dir() and not is_ignored(entry.name):
                if entry.is_symlink():  # following these could loop
                    raise ValueError(f"{entry.path} is a link to a folder inside a class; move it out")
                yield from walk_images(Path(entry.path), base, path)
