"""ImageNet-C."""

from __future__ import annotations

from typing import Annotated

from assay.workers.data.formats import parameters
from assay.workers.data.formats.images.imagenet_classes import ALL, class_list, published_of
from assay.workers.data.formats.images.imagenet_files import Resize
from assay.workers.data.formats.stored_corruptions import Kind, StoredCorruptions, open_stored

__all__ = ["imagenet_c"]

TASKS = ("stored_corruptions",)
PAPER = "Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions"
FACTS = {
    "classes": 1000, "channels": 3, "test_only": True, "class_list": ALL, "corrupted_from": "imagenet",
    "made_with": "imagenet_c", "made_at": 224, "published": 50_000,
}  # fmt: skip
CROP = 224  # The files are already centre crops of 224 pixels


def imagenet_c(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: Annotated[str, "folder"] = "imagenet-c",
    resize: Resize = "bicubic",
) -> StoredCorruptions:
    """ImageNet-C as published: FOLDER/CORRUPTION/SEVERITY/WNID/IMAGE, all of 1000 classes, 224 pixels.

    For the evaluation `corruptions` with source "stored"; only the corruptions and severities that it asks
    for need to be there. The ids of `imagenet` let a limit take the same images.

    Args:
        folder: relative name of the folder into which the archives were unpacked.
        resize: interpolation for models of another image size than 224.
    """
    kind = Kind(
        "imagenet_c",
        "ImageNet-C",
        clean=ALL,
        classes=class_list(ALL),
        prefix="val/",
        crop=CROP,
        published=published_of(ALL),
    )
    return open_stored(kind, root, split, folder, resize)
