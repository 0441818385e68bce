"""CIFAR-10-C."""

from __future__ import annotations

from assay.workers.data.cifar10 import CLASS_NAMES, MEAN, STD
from assay.workers.data.formats import parameters
from assay.workers.data.formats.stored_arrays import ArrayKind, StoredArrays, open_arrays

__all__ = ["cifar10_c"]

TASKS = ("stored_corruptions",)
PAPER = "Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions"
FACTS = {
    "classes": 10, "channels": 3, "size": 32, "test": 10_000, "test_only": True, "corruption_arrays": True,
    "corrupted_from": "cifar10", "made_with": "cifar_c", "made_at": 32,
}  # fmt: skip

IMAGES = 10_000  # of a corruption at a severity


def cifar10_c(
    root: parameters.Root, split: parameters.Split, *, folder: parameters.ArchiveFolder = "CIFAR-10-C"
) -> StoredArrays:
    """CIFAR-10-C as published: FOLDER/CORRUPTION.npy and FOLDER/labels.npy (10 classes, 32 x 32).

    For the evaluation `corruptions` with source "stored"; only the corruptions that it asks for need to be
    there. An array has CIFAR-10's 10 000 test images at severity 1, then at 2, to 5. The ids of
    `cifar10` let a limit take the same images.
    """
    kind = ArrayKind("cifar10_c", "CIFAR-10-C", "cifar10", CLASS_NAMES, MEAN, STD, IMAGES)
    return open_arrays(kind, root, split, folder)
