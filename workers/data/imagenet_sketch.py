"""ImageNet-Sketch: drawings in black and white."""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.images.imagenet_files import ImageNetFiles, Resize, natural_shift

__all__ = ["imagenet_sketch"]

TASKS = ("classification",)
PAPER = "Wang et al. 2019, Learning Robust Global Representations by Penalizing Local Predictive Power"
FACTS = {"classes": 1000, "channels": 3, "test": 50_889, "test_only": True, "title": "ImageNet-Sketch"}


def imagenet_sketch(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "imagenet-sketch",
    resize: Resize = "bicubic",
    crop_fraction: parameters.CropFraction = 0.875,
) -> ImageNetFiles:
    """ImageNet-Sketch: drawings of ImageNet's 1000 classes (50,889 images).

    FOLDER/WNID/IMAGE: the archive's folder `sketch`, or what is in it. The folders must be the 1000 classes.
    """
    return natural_shift("imagenet_sketch", root, split, folder, resize, crop_fraction)
