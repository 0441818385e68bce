"""Rescaling of whole images with the aspect ratio kept, as Segmenter does before it crops or cuts windows.

Strudel et al., "Segmenter: Transformer for Semantic Segmentation", ICCV 2021, section 4.1, and its released
settings: a given short side, a long side of at most four times as many pixels, linear interpolation with
half-pixel centres and no anti-aliasing. Deviation: label maps take the nearest pixel with the same centres
(the release's library is off by half a pixel).

Legend: C channels, H height, W width.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import interpolate

from assay.workers.data.formats.dataset import Levels

MAX_ELONGATION = 4.0
BYTE = 255.0


def size_with_short_side(height: int, width: int, short_side: float) -> tuple[int, int]:
    """Height and width with this short side; the long side is at most four times as long."""
    factor = min(short_side / min(height, width), MAX_ELONGATION * short_side / max(height, width))
    return max(1, int(height * factor + 0.5)), max(1, int(width * factor + 0.5))


def rescale_pixels(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize uint8 pixels (C, H, W) to (height, width): float32 in [0, 1]."""
    values = Levels(pixels, 255).pixels()
    if pixels.shape[-2:] == size:
        return values
    resized = interpolate(values[None], size=size, mode="bilinear", align_corners=False)[0]
    return resized.clamp_(0.0, 1.0)  # rounded weights: a white image may exceed 1 by an ulp


def rescale_map(labels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize a uint8 label map (H, W) to (height, width), by nearest pixels."""
    if labels.shape == size:
        return labels
    return interpolate(labels[None, None], size=size, mode="nearest-exact")[0, 0]
