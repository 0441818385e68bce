"""Central zoom of images as by first-order scipy.ndimage.zoom: corner to corner.

Deviation: at some sizes (160 and 320 pixels with a few factors, never at 224) scipy's last row or column
falls outside the image by a rounding error and is black; here it is the image's last.

n = images, C = channels, H x W = size.
"""

from __future__ import annotations

import math

from torch import Tensor
from torch.nn.functional import interpolate


def cropped(length: int, factor: float) -> int:
    """Size of the central crop that zooming by `factor` brings back to at least `length`."""
    return math.ceil(length / factor)


def zoom(fields: Tensor, factor: float) -> Tensor:
    """Fields (n, C, h, w) enlarged by a factor, bilinear; the corner pixels stay corner pixels."""
    height, width = (round(side * factor) for side in fields.shape[-2:])
    return interpolate(fields, size=(height, width), mode="bilinear", align_corners=True)


def trimmed(fields: Tensor, height: int, width: int, *, from_corner: bool) -> Tensor:
    """The central H x W of larger fields, or the part at the upper left."""
    rows, columns = fields.shape[-2:]
    top, left = (0, 0) if from_corner else ((rows - height) // 2, (columns - width) // 2)
    return fields[..., top : top + height, left : left + width]


def zoom_into_the_middle(fields: Tensor, factor: float, *, from_corner: bool = False) -> Tensor:
    """Enlarges the centre of fields (n, C, H, W) to at least H x W, and crops what is more.

    The authors crop on both sides, the fork at the right and bottom (`from_corner`).
    """
    height, width = fields.shape[-2:]
    rows, columns = cropped(height, factor), cropped(width, factor)
    top, left = (height - rows) // 2, (width - columns) // 2
    middle = fields[..., top : top + rows, left : left + columns]
    return trimmed(zoom(middle, factor), height, width, from_corner=from_corner)
