"""A user's own images under corruptions, stored in the layout of ImageNet-C."""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import refuse_training
from assay.workers.data.formats.folders import find_folder
from assay.workers.data.formats.images.imagenet_files import Resize
from assay.workers.data.formats.stored_corruptions import Kind, StoredCorruptions
from assay.workers.data.formats.table_labels import ClassNames
from assay.workers.data.image_folder import RESAMPLING

__all__ = ["corrupted_folder"]

TASKS = ("stored_corruptions",)
PAPER = "Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions (layout)"
FACTS = {"channels": 3, "test_only": True}


def corrupted_folder(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder,
    resize: Resize = "bicubic",
    class_names: ClassNames | None = None,
) -> StoredCorruptions:
    """A folder of corrupted images, FOLDER/CORRUPTION/SEVERITY/CLASS/IMAGE, of any classes and size.

    For the evaluation `corruptions` with source "stored"; the corruptions have ImageNet-C's names. Classes
    are numbered as in an `image_folder`. The id of an example is CLASS/IMAGE, as in an
    `image_folder` without split folders, so that a limit takes the same images as there with splits "all".

    Args:
        resize: interpolation of the central square to the model's image size.
        class_names: names of all class folders in order; sorted, if absent.
    """
    refuse_training("A corrupted_folder", split)
    root, where = find_folder(root, folder)
    classes = None if class_names is None else tuple(class_names)
    kind = Kind("corrupted_folder", "A folder of corrupted images", clean="image_folder", classes=classes)
    return StoredCorruptions(kind, where, root, RESAMPLING[resize])
