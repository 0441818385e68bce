"""Which published set of images a folder has, by names in it; of ImageNet's sets, by the classes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from assay.service.catalog.catalog import load
from assay.service.submission.imagenet_c_layout import LABELS_FILE, array_file
from assay.workers.data.cifar10 import CLASS_NAMES
from assay.workers.data.formats.images.imagenet_classes import ALL, class_list, listed_sets
from assay.workers.data.formats.images.imagenet_files import PARTS
from assay.workers.data.formats.stored_corruptions import corruption_names
from assay.workers.data.imagenet_v2 import FOLDERS
from assay.workers.data.tiny_imagenet import CLASSES

WORDNET_ID = re.compile(r"n[0-9]{8}")


def known_set(folder: Path) -> str | None:
    """The catalog name of the set with a mark in the folder, or None."""
    for component in load().list("data"):
        if any((folder / mark).exists() for mark in (component.facts or {}).get("marks", ())):
            return component.name
    if any((folder / array_file(name)).is_file() for name in corruption_names()):
        return "cifar100_c" if _has_label(folder / LABELS_FILE, len(CLASS_NAMES)) else "cifar10_c"
    if next((folder / class_list(ALL)[0]).glob("sketch_*"), None) is not None:
        return "imagenet_sketch"
    if all((folder / number).is_dir() for number in (FOLDERS[0], FOLDERS[-1])):
        return "imagenet_v2"
    return None


def of_tiny_imagenet(folder: Path) -> bool:
    """Whether a folder has as many WordNet ids as Tiny ImageNet, and no other folder."""
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
    return len(names) == CLASSES and all(map(WORDNET_ID.fullmatch, names))


def _has_label(path: Path, least: int) -> bool:
    try:
        return bool((np.load(path, mmap_mode="r", allow_pickle=False) >= least).any())
    except (OSError, ValueError, TypeError):
        return False


COMMON = 0.9  # Common share of the classes of folder and set together


def set_of_imagenet(folder: Path) -> str | None:
    """The set of ImageNet with the classes of `folder`, or of its split's folder; None otherwise."""
    for place in (folder, *(folder / part for part in PARTS["val"])):
        if not place.is_dir():
            continue
        if next(place.glob("ILSVRC2012_val_*"), None) is not None:
            return ALL
        found = {entry.name for entry in place.iterdir()}.intersection(class_list(ALL))
        for name in listed_sets():
            wanted = set(class_list(name))
            if len(found & wanted) > COMMON * len(found | wanted):
                return name
    return None
