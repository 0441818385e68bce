"""Pillow on batches of levels, for corruptions that must match its bytes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor


def each_picture(levels: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Applies `change` to each image of levels (n, C, H, W), of the CPU, as a picture, L or RGB."""

    def changed(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        # Pillow joins and splits planes faster than an array is transposed.
        bands = [Image.fromarray(plane) for plane in planes]
        picture = change(bands[0] if len(bands) == 1 else Image.merge("RGB", bands))
        return np.stack([np.asarray(band) for band in picture.split()])

    # numpy casts in a quarter of torch's time.
    corrupted = np.stack([changed(planes) for planes in levels.numpy().astype(np.uint8)])
    return torch.from_numpy(corrupted).to(levels.dtype)
