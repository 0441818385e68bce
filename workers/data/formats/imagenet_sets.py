"""Which of ImageNet's sets a folder has: its classes tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from assay.workers.data.formats.dataset import ImageSet
from assay.workers.data.formats.imagenet_classes import ALL, class_list
from assay.workers.data.formats.imagenet_files import PARTS
from assay.workers.data.imagenet import imagenet
from assay.workers.data.imagenet_a import imagenet_a
from assay.workers.data.imagenet_o import imagenet_o
from assay.workers.data.imagenet_r import imagenet_r

# Share of the classes of a folder and of a set together that both must have.
COMMON = 0.9

IMAGENETS: dict[str, Callable[..., ImageSet]] = {
    "imagenet": imagenet,
    "imagenet_a": imagenet_a,
    "imagenet_o": imagenet_o,
    "imagenet_r": imagenet_r,
}


def set_of_imagenet(folder: Path) -> str | None:
    """The set of ImageNet whose classes most of the folders are, and that are most of its classes.

    `folder` has a folder for each class, or such a folder called after the split.
    """
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
