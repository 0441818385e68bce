"""ImageNet-V2, collected later in the way of the validation set."""

from __future__ import annotations

from assay.workers.data.formats import parameters
from assay.workers.data.formats.images.imagenet_files import ImageNetFiles, Resize, natural_shift

__all__ = ["imagenet_v2"]

TASKS = ("classification",)
PAPER = "Recht et al. 2019, Do ImageNet Classifiers Generalize to ImageNet?"
FACTS = {"classes": 1000, "channels": 3, "test": 10_000, "test_only": True, "title": "ImageNet-V2"}

# A folder has its class's number. Numbers, not texts, are in order.
FOLDERS = tuple(str(number) for number in range(1000))


def imagenet_v2(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: parameters.Folder = "imagenet-v2",
    resize: Resize = "bicubic",
    crop_fraction: parameters.CropFraction = 0.875,
) -> ImageNetFiles:
    """ImageNet-V2: ImageNet's 1000 classes, collected anew (10,000 images).

    FOLDER/NUMBER/IMAGE, as one of the three archives unpacks (matched-frequency, threshold-0.7 or top-images;
    they are different test sets). NUMBER, from 0 to 999, is the class's index among ImageNet's sorted WordNet
    ids.
    """
    return natural_shift("imagenet_v2", root, split, folder, resize, crop_fraction, FOLDERS)
