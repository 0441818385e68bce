"""Segmenter's training examples: random crops of images and label maps, cut from the files at their own size.

Strudel et al., "Segmenter: Transformer for Semantic Segmentation", ICCV 2021, section 4.1: a random
rescaling, crop (padded if the image is smaller) and horizontal flip; photometric distortion, as released.
Padding is the data's pixel mean, 0 after normalisation, and IGNORE in the label map. Deviation: the release
redraws a crop, up to ten times, while a class covers over three quarters; the paper does not mention this.

Legend: C channels, H height, W width, S side of a crop.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from assay.workers.data.formats.images.rescaling import (
    BYTE,
    rescale_map,
    rescale_pixels,
    size_with_short_side,
)
from assay.workers.data.formats.segmentation import IGNORE, SegmentationSet
from assay.workers.training.augmentation.photometric import distort
from assay.workers.training.examples import Example
from assay.workers.training.recipe import Crops


def random_crop(
    pixels: Tensor, labels: Tensor, crops: Crops, mean: Sequence[float], draws: random.Random
) -> tuple[Tensor, Tensor]:
    """Random training example from an image, uint8 (C, H, W) at the file's size, and its labels.

    Labels: classes or IGNORE, uint8 (H, W); the mean (C,), in [0, 1], colours the padding. Returns pixels in
    [0, 1], float32 (C, S, S), and labels, uint8 (S, S).
    """
    height, width = labels.shape
    short = float(crops.short_side or min(height, width)) * draws.uniform(*crops.scales)
    size = size_with_short_side(height, width, short)
    top, left = (draws.randint(0, max(side - crops.size, 0)) for side in size)
    window = (slice(top, top + crops.size), slice(left, left + crops.size))
    image = rescale_pixels(pixels, size)[:, *window]
    truth = rescale_map(labels, size)[window]
    if crops.flip and draws.random() < 0.5:
        image, truth = image.flip(2), truth.flip(1)
    if crops.photometric:
        image = _distorted(image, draws)
    filled = torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1).repeat(1, crops.size, crops.size)
    filled[:, : image.shape[1], : image.shape[2]] = image
    judged = torch.full((crops.size, crops.size), IGNORE, dtype=torch.uint8)
    judged[: truth.shape[0], : truth.shape[1]] = truth
    return filled, judged


def _distorted(image: Tensor, draws: random.Random) -> Tensor:
    """Photometric distortion of (C, H, W) in [0, 1]; results are multiples of 1 / 255."""
    pixels = (image * BYTE).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()  # (H, W, C)
    changed = np.ascontiguousarray(distort(pixels, draws))
    return torch.from_numpy(changed).permute(2, 0, 1).to(torch.float32) / BYTE


class CropExamples:
    """Crops of a training set, made one by one (`Examples`)."""

    def __init__(self, data: SegmentationSet, crops: Crops) -> None:
        self._data = data
        self._crops = crops

    @property
    def ids(self) -> Sequence[str]:
        """Unique example ids in stable order, (n,)."""
        return self._data.ids

    def make(self, index: int, seed: int) -> Example:
        """Crop, float32 (C, S, S) in [0, 1], and its label map, uint8 (S, S)."""
        pixels, labels = self._data.example(index)
        return Example(*random_crop(pixels, labels, self._crops, self._data.mean, random.Random(seed)))
