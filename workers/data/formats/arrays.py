"""Data sets of images of equal native size, as bytes; n examples, C channels, H height, W width, S side."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor

from assay.workers.data.formats.dataset import (
    Levels,
    Listed,
    ListedSet,
    checked_indices,
    checked_size,
    resize,
)

CACHE_BYTES = 64 * 2**20  # Up to this many bytes all images are resized once and cached
HASH_CHUNK = 1000  # Examples hashed at a time


class ArrayDataSet(ListedSet):
    """Images of equal native size, read by index and scaled to [0, 1]."""

    task = "classification"

    def __init__(
        self,
        *,
        labels: Tensor,
        shape: tuple[int, int, int],
        white: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        read: Callable[[list[int]], Tensor],
        **listed: Unpack[Listed],
    ) -> None:
        """`read`: indices to uint8 (n, C, H, W); `shape`: (C, H, W); `white`: the byte of 1."""
        super().__init__(**listed)
        assert len(self) == len(labels)
        self.labels = labels
        self.channels, height, width = shape
        self.size = (height, width)
        self.white = white
        self.mean = mean
        self.std = std
        self._read = read
        self._resized: tuple[int, Tensor] | None = None

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1], float32 (len(indices), C, size, size), bilinear from the native size."""
        chosen = checked_indices(indices, len(self))
        checked_size(size)
        if len(self) * self.channels * size * size * 4 > CACHE_BYTES:
            return self._scaled(chosen, size)
        if self._resized is None or self._resized[0] != size:
            self._resized = (size, self._scaled(list(range(len(self))), size))
        return self._resized[1][torch.tensor(chosen, dtype=torch.int64)]

    def levels(self, indices: Sequence[int], size: int) -> Levels | None:
        """The images as stored; None at other sizes than the native size."""
        if self.size != (size, size):
            return None
        return Levels(self._read(checked_indices(indices, len(self))), self.white)

    def _scaled(self, indices: list[int], size: int) -> Tensor:
        return resize(Levels(self._read(indices), self.white).pixels(), size)

    def content_sha256(self) -> str:
        """Hash of ids, labels and native pixels."""
        height, width = self.size
        digest = hashlib.sha256(f"{self.name} {self.channels}x{height}x{width}/{self.white}\n".encode())
        labels = self.labels.tolist()
        for start in range(0, len(self), HASH_CHUNK):
            indices = list(range(start, min(start + HASH_CHUNK, len(self))))
            for index, pixels in zip(indices, self._read(indices).numpy(), strict=True):
                digest.update(f"{self.ids[index]} {labels[index]}\n".encode())
                digest.update(pixels.tobytes())
        return digest.hexdigest()
