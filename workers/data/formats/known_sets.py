"""Which published set of images a folder has: the names in it tell; of ImageNet's sets, the classes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np

from assay.service.submission.imagenet_c_layout import LABELS_FILE, array_file
from assay.workers.data import cifar10, cifar100, objectnet
from assay.workers.data.ade20k import ARCHIVE
from assay.workers.data.formats.dataset import ImageSet
from assay.workers.data.formats.imagenet_classes import ALL, class_list
from assay.workers.data.formats.imagenet_files import PARTS
from assay.workers.data.formats.stored_corruptions import corruption_names
from assay.workers.data.imagenet import imagenet
from assay.workers.data.imagenet_a import imagenet_a
from assay.workers.data.imagenet_o import imagenet_o
from assay.workers.data.imagenet_r import imagenet_r
from assay.workers.data.imagenet_v2 import FOLDERS
from assay.workers.data.tiny_imagenet import CLASS_FILE, CLASSES

WORDNET_ID = re.compile(r"n[0-9]{8}")
# Files and folders: a set has at least one.
MARKS = {
    "cifar10": (cifar10.BINARY, cifar10.PYTHON),
    "cifar100": (cifar100.BINARY, cifar100.PYTHON),
    "svhn": ("train_32x32.mat", "test_32x32.mat"),
    "tiny_imagenet": (CLASS_FILE,),
    "ade20k": (ARCHIVE,),
    "objectnet": (f"{objectnet.MAPPINGS}/{objectnet.IMAGENET_OF_LABEL}",),
    "camvid": ("trainannot", "valannot", "testannot"),
}


def known_set(folder: Path) -> str | None:
    """The catalog name of the set, or None."""
    for name, marks in MARKS.items():
        if any((folder / mark).exists() for mark in marks):
            return name
    if any((folder / array_file(name)).is_file() for name in corruption_names()):
        return "cifar100_c" if _has_label(folder / LABELS_FILE, len(cifar10.CLASS_NAMES)) else "cifar10_c"
    if next((folder / class_list(ALL)[0]).glob("sketch_*"), None) is not None:
        return "imagenet_sketch"
    if all((folder / number).is_dir() for number in (FOLDERS[0], FOLDERS[-1])):
        return "imagenet_v2"
    return None


def of_tiny_imagenet(folder: Path) -> bool:
    """Whether a folder has as many WordNet ids as Tiny ImageNet has classes, and no other folder."""
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
    return len(names) == CLASSES and all(map(WORDNET_ID.fullmatch, names))


def _has_label(path: Path, least: int) -> bool:
    try:
        return bool((np.load(path, mmap_mode="r", allow_pickle=False) >= least).any())
    except (OSError, ValueError, TypeError):
        return False


# Share of the classes of a folder and of a set together that both must have.
COMMON = 0.9

IMAGENETS: dict[str, Callable[..., ImageSet]] = {
    "imagenet": imagenet,
    "imagenet_a": imagenet_a,
    "imagenet_o": imagenet_o,
    "imagenet_r": imagenet_r,
}


def set_of_imagenet(folder: Path) -> str | None:
    """The set of ImageNet that has the classes of `folder`, or of its folder of the split; None otherwise."""
    for place in (folder, *(folder / part for part in PARTS["val"])):
        if not place.is_dir():
            continue
        if next(place.glob("ILSVRC2012_val_*"), None) is not None:
            return ALL
        found = {entry.name for entry in place.iterdir()}.intersection(class_list(ALL))
        for name in IMAGENETS:
            wanted = set(class_list(name))
            if len(found & wanted) > COMMON * len(found | wanted):
                return name
    return None
