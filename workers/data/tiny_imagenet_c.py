"""Tiny ImageNet-C.

Crops of ImageNet's validation images, other images than Tiny ImageNet's.
"""

from __future__ import annotations

from typing import Any

from assay.workers.data.formats import parameters
from assay.workers.data.formats.images.imagenet_files import Resize
from assay.workers.data.formats.stored_corruptions import Kind, StoredCorruptions, open_stored

__all__ = ["tiny_imagenet_c"]

TASKS = ("stored_corruptions",)
PAPER = "Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions"
SIDE = 64
FACTS: dict[str, Any] = {
    "classes": 200, "channels": 3, "test": 10_000, "test_only": True, "corrupted_from": "tiny_imagenet",
    "made_with": "tiny_imagenet_c", "made_at": SIDE,
}  # fmt: skip


def tiny_imagenet_c(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.ArchiveFolder = "Tiny-ImageNet-C",
    resize: Resize = "bicubic",
) -> StoredCorruptions:
    """Tiny ImageNet-C as published: FOLDER/CORRUPTION/SEVERITY/WNID/IMAGE, of 200 classes, 64 pixels.

    For the evaluation `corruptions` with source "stored"; only the corruptions and severities that it asks
    for need to be there. Labels are in the order of the sorted WordNet ids, as of `tiny_imagenet`.

    Args:
        resize: interpolation for models of another image size than 64.
    """
    kind = Kind(
        "tiny_imagenet_c",
        "Tiny ImageNet-C",
        clean="tiny_imagenet_c",
        count=FACTS["classes"],
        crop=SIDE,
        published=FACTS["test"],
    )
    return open_stored(kind, root, split, folder, resize)
