"""Segmentation sets: interface, sets in memory. n examples, C channels, H height, W width, S side."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol, Unpack

import torch
from torch import Tensor
from torch.nn import functional

from assay.workers.data.formats.dataset import (
    ImageSet,
    Levels,
    Listed,
    ListedSet,
    checked_indices,
    checked_size,
    resize,
)

# Label of unlabelled pixels: no class, excluded from every count.
IGNORE = 255


class SegmentationSet(ImageSet, Protocol):
    """Images with one label per pixel."""

    def label_maps(self, indices: Sequence[int], size: int) -> Tensor:
        """Classes in [0, classes) or IGNORE, uint8 (len(indices), size, size); the pixels of `images`."""

    def example(self, index: int) -> tuple[Tensor, Tensor]:
        """One whole image at its own size: uint8 (C, H, W), and its label map, uint8 (H, W)."""


class SegmentationArrays(ListedSet):
    """Images and label maps of equal native size, kept as bytes; maps are resized to the nearest pixel."""

    task = "segmentation"

    def __init__(
        self,
        *,
        pixels: Tensor,
        maps: Tensor,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        **listed: Unpack[Listed],
    ) -> None:
        """`pixels` are uint8 (n, C, H, W), `maps` have classes or IGNORE, uint8 (n, H, W)."""
        super().__init__(**listed)
        assert len(self) == len(pixels) == len(maps)
        self.channels = pixels.shape[1]
        self.size: tuple[int, int] | None = (pixels.shape[2], pixels.shape[3])
        self.mean = mean
        self.std = std
        self._pixels = pixels
        self._maps = maps

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1], float32 (len(indices), C, size, size), bilinear from the native size."""
        return resize(self._stored(indices).pixels(), size)

    def levels(self, indices: Sequence[int], size: int) -> Levels | None:
        """The images as stored; None at other sizes than the native size."""
        return self._stored(indices) if self.size == (size, size) else None

    def _stored(self, indices: Sequence[int]) -> Levels:
        chosen = torch.tensor(checked_indices(indices, len(self)), dtype=torch.int64)
        return Levels(self._pixels[chosen], 255)

    def label_maps(self, indices: Sequence[int], size: int) -> Tensor:
        """Classes in [0, classes) or IGNORE, uint8 (len(indices), size, size)."""
        chosen = torch.tensor(checked_indices(indices, len(self)), dtype=torch.int64)
        maps = self._maps[chosen]
        if len(maps) == 0:  # interpolate rejects an empty batch
            return maps.new_empty((0, checked_size(size), size))
        wanted = (checked_size(size), size)
        return functional.interpolate(maps[:, None], size=wanted, mode="nearest-exact")[:, 0]

    def example(self, index: int) -> tuple[Tensor, Tensor]:
        """One image at its own size, uint8 (C, H, W), and its label map, uint8 (H, W)."""
        (place,) = checked_indices([index], len(self))
        return self._pixels[place].clone(), self._maps[place].clone()

    def content_sha256(self) -> str:
        """Hash of ids, native pixels and maps."""
        digest = hashlib.sha256(f"{self.name} {tuple(self._pixels.shape[1:])}\n".encode())
        for identifier, pixels, labels in zip(self.ids, self._pixels, self._maps, strict=True):
            digest.update(f"{identifier}\n".encode())
            digest.update(pixels.numpy().tobytes())
            digest.update(labels.numpy().tobytes())
        return digest.hexdigest()
