"""Classes of labelled image folders, by the names of their folders.

Layouts: FOLDER/{train,val,test}/CLASS/... and FOLDER/CLASS/...; hidden files and folders are ignored. Workers
read the images by the same functions, so that the service counts the classes that a worker will find.
"""

from __future__ import annotations

import os
from pathlib import Path

from assay.service.catalog.catalog import Checked
from assay.service.submission.data_folders import IMAGE_SUFFIXES, check_folder, check_inside

SPLIT_FOLDERS = ("train", "val", "test")


def count_classes(data: Checked, root: Path | None) -> int | None:
    """Number of classes of data whose classes are folders; None for other data, or where they are not seen.

    Args:
        data: states the fact `class_folders` if its classes are folders of its parameter `folder`.
        root: the data root, or None where unknown.
    """
    name = data.params.get("folder")
    if not (data.component.facts or {}).get("class_folders") or root is None or not isinstance(name, str):
        return None
    if not root.is_dir() or check_folder(name, root) is not None:
        return None
    base = root.resolve()
    folder = base / name
    try:
        parts = split_folders(folder, base)
        return len(class_folders(folder / parts[0] if parts else folder, base)) or None
    except (OSError, ValueError):  # the worker says what is wrong with it
        return None


def split_folders(folder: Path, base: Path) -> list[str]:
    """Split folders that contain class folders, the first of which names the classes.

    ImageNet's unlabelled `test` does not count.

    Raises:
        ValueError: a symbolic link leads out of the root.
    """
    found = [part for part in SPLIT_FOLDERS if (folder / part).is_dir()]
    return [part for part in found if not holds_images(folder / part) and class_folders(folder / part, base)]


def class_folders(folder: Path, base: Path) -> list[str]:
    """Sorted names of the visible folders.

    Raises:
        ValueError: a symbolic link leads out of the root.
    """
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and entry.is_dir():
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
    return not entry.name.startswith(".") and entry.name.lower().endswith(IMAGE_SUFFIXES) and entry.is_file()
