"""ImageNet-R, a natural shift of ImageNet."""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.images.imagenet_files import ImageNetFiles, Resize, natural_shift

__all__ = ["imagenet_r"]

TASKS = ("classification",)
PAPER = "Hendrycks et al. 2021, The Many Faces of Robustness"
FACTS = {
    "classes": 200, "model_classes": 1000, "channels": 3, "test_only": True, "title": "ImageNet-R",
    "published": 30_000,
}  # fmt: skip


def imagenet_r(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "imagenet-r",
    resize: Resize = "bicubic",
    crop_fraction: parameters.CropFraction = 0.875,
) -> ImageNetFiles:
    """ImageNet-R: paintings, sculptures, toys and other renditions (30,000 images of 200 classes).

    For models of ImageNet's 1000 classes: their logits of the 200 are compared, as in the authors'
    evaluation. FOLDER/WNID/IMAGE, as the archive unpacks; the folders must be the 200 classes.

    Args:
        resize: interpolation of the short side (the set's authors: bilinear).
    """
    return natural_shift("imagenet_r", root, split, folder, resize, crop_fraction)
