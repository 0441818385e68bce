"""Segmenter's training examples: random crops of images and label maps, cut from the files at their own size.

Strudel et al., "Segmenter: Transformer for Semantic Segmentation", ICCV 2021, section 4.1: a random change of
size, a random crop, which is padded where the image is smaller, a random mirror image; and photometric
distortion, as released. Draws are keyed by seed, epoch and example, so that neither batches nor interruptions
change them. The padding is the pixel mean of the data, 0 after normalisation, and IGNORE in the label map.
Deviation: the release draws a crop anew, up to ten times, while one class has more than three quarters of it,
which the paper does not mention.

Legend: B batch, C channels, H height, W width, S side of a crop.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from workers.data.ahead import load_ahead
from workers.data.rescaling import BYTE, rescale_map, rescale_pixels, size_with_short_side
from workers.data.segmentation import IGNORE, SegmentationSet
from workers.training.photometric import distort
from workers.training.randomness import derive_seed, epoch_order
from workers.training.recipe import Crops


def random_crop(
    pixels: Tensor, labels: Tensor, crops: Crops, mean: Sequence[float], draws: random.Random
) -> tuple[Tensor, Tensor]:
    """One training example.

    Args:
        pixels: uint8 (C, H, W), at the file's size.
        labels: classes or IGNORE, uint8 (H, W).
        crops: how to change it.
        mean: colour of the padding, in [0, 1], (C,).
        draws: where all random numbers come from.

    Returns:
        Pixels in [0, 1], float32 (C, S, S), and classes or IGNORE, uint8 (S, S).
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
    """(C, H, W) in [0, 1] with other colours; pixels are then multiples of 1 / 255."""
    pixels = (image * BYTE).round().to(torch.uint8).permute(1, 2, 0).contiguous().numpy()  # (H, W, C)
    changed = np.ascontiguousarray(distort(pixels, draws))
    return torch.from_numpy(changed).permute(2, 0, 1).to(torch.float32) / BYTE


class CropBatches:
    """The crops of a training, cut into batches and addressed by step.

    An epoch visits every example once, in an order keyed by seed and epoch, and drops what does not fill a
    last batch (another part each epoch); a set smaller than one batch is one batch.

    Attributes:
        batch_size: examples in a batch.
        steps_per_epoch: batches in an epoch.
    """

    def __init__(
        self, data: SegmentationSet, crops: Crops, *, seed: int, batch_size: int, device: torch.device
    ) -> None:
        """Note where the examples come from; nothing is loaded yet.

        Raises:
            ValueError: there are no examples.
        """
        self._data = data
        self._crops = crops
        self._seed = seed
        self._device = device
        self._n = len(data.ids)
        if self._n == 0:
            raise ValueError(f"data set {data.name!r} has no training examples")
        self.batch_size = min(batch_size, self._n)
        self.steps_per_epoch = self._n // self.batch_size

    def between(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of the steps start..stop-1.

        Yields:
            Crops, float32 (B, C, S, S) in [0, 1], and their label maps, uint8 (B, S, S), on the device.
        """
        for images, maps in load_ahead(self._load, self._chosen(start, stop)):
            yield images.to(self._device), maps.to(self._device)

    def _chosen(self, start: int, stop: int) -> Iterator[tuple[int, list[int]]]:
        """Epoch and examples of each step."""
        order: list[int] = []
        for step in range(start, stop):
            epoch, number = divmod(step, self.steps_per_epoch)
            if not order or number == 0:
                order = epoch_order(self._n, seed=self._seed, epoch=epoch).tolist()
            first = number * self.batch_size
            yield epoch, order[first : first + self.batch_size]

    def _load(self, chosen: tuple[int, list[int]]) -> tuple[Tensor, Tensor]:
        epoch, indices = chosen
        made = [self._crop(epoch, index) for index in indices]
        images, maps = zip(*made, strict=True)
        return torch.stack(images), torch.stack(maps)

    def _crop(self, epoch: int, index: int) -> tuple[Tensor, Tensor]:
        key = derive_seed(self._seed, f"crop/{self._data.ids[index]}", epoch)
        return random_crop(*self._data.example(index), self._crops, self._data.mean, random.Random(key))
