"""ImageNet-A, a natural shift of ImageNet."""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.images.imagenet_files import ImageNetFiles, Resize, natural_shift

__all__ = ["imagenet_a"]

TASKS = ("classification",)
PAPER = "Hendrycks et al. 2021, Natural Adversarial Examples"
FACTS = {
    "classes": 200, "model_classes": 1000, "channels": 3, "test_only": True, "title": "ImageNet-A",
    "published": 7_500, "chosen_against_models": True,
}  # fmt: skip


def imagenet_a(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "imagenet-a",
    resize: Resize = "bicubic",
    crop_fraction: parameters.CropFraction = 0.875,
) -> ImageNetFiles:
    """ImageNet-A: natural images that a ResNet-50 gets wrong (7,500 images of 200 classes).

    For models of ImageNet's 1000 classes: their logits of the 200 are compared, as in the authors'
    evaluation. FOLDER/WNID/IMAGE, as the archive unpacks; the folders must be the 200 classes.

    Args:
        resize: interpolation of the short side (the set's authors: bilinear).
    """
    return natural_shift("imagenet_a", root, split, folder, resize, crop_fraction)
