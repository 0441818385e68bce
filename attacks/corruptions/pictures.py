"""Pillow on batches of levels: for corruptions whose bytes are the library's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from PIL import Image
from torch import Tensor


def each_picture(levels: Tensor, change: Callable[[Image.Image], Image.Image]) -> Tensor:
    """Levels (n, C, H, W) with `change` applied to each image as a picture, L or RGB, of the same size."""
    grey = levels.shape[1] == 1
    pixels = levels.to("cpu", torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()  # (n, H, W, C)
    pictures = [change(Image.fromarray(image[..., 0] if grey else image)) for image in pixels]
    changed = np.stack([np.asarray(picture) for picture in pictures]).reshape(pixels.shape)
    return torch.from_numpy(changed).permute(0, 3, 1, 2).to(levels.device, levels.dtype).contiguous()
