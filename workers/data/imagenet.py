"""ImageNet-1K: 1.28 million training and 50,000 validation images of 1000 classes, from folders."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Gt, Le

from assay.workers.data.formats import parameters
from assay.workers.data.formats.folders import find_folder
from assay.workers.data.formats.images.imagenet_files import (
    ImageNetFiles,
    Resize,
    training_images,
    validation_images,
)

__all__ = ["imagenet"]

TASKS = ("classification",)
PAPER = "Russakovsky et al. 2015, ImageNet Large Scale Visual Recognition Challenge"
FACTS = {
    "classes": 1000, "channels": 3, "title": "ImageNet", "published": 50_000, "published_train": 1_281_167,
}  # fmt: skip


def imagenet(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: parameters.Folder = "imagenet",
    resize: Resize = "bicubic",
    crop_fraction: Annotated[float, Gt(0), Le(1)] = 0.875,
) -> ImageNetFiles:
    """ImageNet-1K with all its 1000 classes, in sorted order of their WordNet ids.

    Validation images are FOLDER/val/WNID/IMAGE, FOLDER/WNID/IMAGE, or
    FOLDER/val/ILSVRC2012_val_NUMBER.JPEG with a list of labels (development kit, Kaggle, TensorFlow or
    Caffe); Kaggle's ILSVRC/Data/CLS-LOC is found too. An image has the same id in all of them. Images may
    be missing, which is warned of; classes may not.

    Args:
        split: "train" reads the training images, "test" the validation images.
        crop_fraction: side of the centre crop / short side after resizing; 1 keeps the whole short side.
    """
    root, where = find_folder(root, folder)
    find = training_images if split == "train" else validation_images
    data = ImageNetFiles("imagenet", root, find(where, root), resize, crop_fraction)
    if split == "train":
        data.published = None
    return data
