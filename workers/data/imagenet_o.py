"""ImageNet-O: 2,000 images of no ImageNet class that models are sure about, beside images of 200 classes."""

from __future__ import annotations

from typing import Annotated

import torch

from assay.workers.data.formats import parameters
from assay.workers.data.formats.dataset import refuse_training
from assay.workers.data.formats.folders import resolve_folder
from assay.workers.data.formats.images.imagenet_classes import ALL, class_list
from assay.workers.data.formats.images.imagenet_files import (
    ImageNetFiles,
    Labelled,
    Resize,
    find_classes,
    validation_images,
)

__all__ = ["imagenet_o"]

TASKS = ("anomaly_detection",)
PAPER = "Hendrycks et al. 2021, Natural Adversarial Examples"
FACTS = {
    "classes": 200, "model_classes": 1000, "channels": 3, "test_only": True, "title": "ImageNet-O",
    "published": 12_000,  # with 50 validation images of each class
}  # fmt: skip

ANOMALY, NORMAL = "anomaly/", "normal/"


def imagenet_o(
    root: parameters.Root,
    split: parameters.Split,
    *,
    folder: Annotated[str, "folder"] = "imagenet-o",
    negatives_folder: Annotated[str, "folder"] = "imagenet",
    resize: Resize = "bicubic",
    crop_fraction: parameters.CropFraction = 0.875,
) -> ImageNetFiles:
    """ImageNet-O: anomalies, and ImageNet's validation images of the 200 classes that they are taken for.

    For models of ImageNet's 1000 classes: their logits of the 200 are looked at. FOLDER/WNID/IMAGE, as
    the archive unpacks; a folder is the class that an anomaly resembles, not what it is.

    Args:
        folder: relative name of the folder of the anomalies.
        negatives_folder: relative name of ImageNet's folder, in a layout of the data set `imagenet`.
        resize: interpolation of the short side (the set's authors: bilinear).
    """
    refuse_training("ImageNet-O", split)
    where, others = resolve_folder(root, folder), resolve_folder(root, negatives_folder)
    assert root is not None
    base, wnids = root.resolve(), class_list(ALL)
    chosen = set(class_list("imagenet_o"))
    anomalies = find_classes(where, base, "imagenet_o", ANOMALY)
    normal = [
        Labelled(NORMAL + image.identifier.removeprefix("val/"), image.path, 0)
        for image in validation_images(others, base)
        if wnids[image.label] in chosen
    ]
    data = ImageNetFiles("imagenet_o", base, [*anomalies, *normal], resize, crop_fraction)
    data.task = "anomaly_detection"
    data.labels = torch.tensor([int(identifier.startswith(ANOMALY)) for identifier in data.ids])
    return data
