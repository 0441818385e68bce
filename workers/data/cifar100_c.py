"""CIFAR-100-C."""

from __future__ import annotations

from assay.workers.data.cifar10_c import FACTS as OF_CIFAR10_C
from assay.workers.data.cifar10_c import IMAGES
from assay.workers.data.cifar100 import CLASS_NAMES, MEAN, STD
from assay.workers.data.formats import parameters
from assay.workers.data.formats.stored_arrays import ArrayKind, StoredArrays, open_arrays

__all__ = ["cifar100_c"]

TASKS = ("stored_corruptions",)
PAPER = "Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions"
FACTS = {**OF_CIFAR10_C, "classes": 100, "corrupted_from": "cifar100"}


def cifar100_c(
    root: parameters.Root, split: parameters.Split, *, folder: parameters.ArchiveFolder = "CIFAR-100-C"
) -> StoredArrays:
    """CIFAR-100-C as published: FOLDER/CORRUPTION.npy and FOLDER/labels.npy (100 classes, 32 x 32).

    For the evaluation `corruptions` with source "stored"; only the corruptions that it asks for need to be
    there. An array has CIFAR-100's 10 000 test images at severity 1, then at 2, to 5. The ids of
    `cifar100` let a limit take the same images.
    """
    kind = ArrayKind("cifar100_c", "CIFAR-100-C", "cifar100", CLASS_NAMES, MEAN, STD, IMAGES)
    return open_arrays(kind, root, split, folder)
