"""Photometric distortion: random brightness, contrast, saturation and hue.

Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016, section 2.2 (after Howard 2013), with the ranges
of the library of Segmenter's authors. Each part has probability one half; contrast comes second or last.
Saturation and hue are changed in HSV with 8 bits per channel. Deviations from that library: values are
rounded, not truncated, and saturation and hue share a conversion.

Legend: H height, W width.
"""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray
from PIL import Image

BRIGHTNESS = 32.0  # bytes, either way
CONTRAST = (0.5, 1.5)
SATURATION = (0.5, 1.5)
HUE = 18 / 180  # of the circle, either way
BYTE = 255
CIRCLE = 256  # PIL's number of hues

Bytes = NDArray[np.uint8]


def distort(pixels: Bytes, draws: random.Random) -> Bytes:
    """Distort colours into a new array of the same shape and type."""
    brightness = _perhaps(draws, -BRIGHTNESS, BRIGHTNESS)
    contrast_last = draws.random() < 0.5
    contrast = _perhaps(draws, *CONTRAST)
    saturation, hue = _perhaps(draws, *SATURATION), _perhaps(draws, -HUE, HUE)
    changed = pixels.copy() if brightness is None else _bytes(pixels + brightness)
    if contrast is not None and not contrast_last:
        changed = _bytes(changed * contrast)
    if pixels.shape[2] == 3 and (saturation is not None or hue is not None):
        changed = _recoloured(changed, 1.0 if saturation is None else saturation, hue or 0.0)
    if contrast is not None and contrast_last:
        changed = _bytes(changed * contrast)
    return changed


def _perhaps(draws: random.Random, low: float, high: float) -> float | None:
    happens, value = draws.random() < 0.5, draws.uniform(low, high)
    return value if happens else None


def _recoloured(pixels: Bytes, saturation: float, hue: float) -> Bytes:
    values = np.array(Image.fromarray(pixels).convert("HSV"))  # (H, W, 3)
    turned = values[:, :, 0].astype(np.int64) + round(hue * CIRCLE)
    values[:, :, 0] = (turned % CIRCLE).astype(np.uint8)
    values[:, :, 1] = _bytes(values[:, :, 1] * saturation)
    return np.array(Image.fromarray(values, "HSV").convert("RGB"))


def _bytes(values: NDArray[np.floating]) -> Bytes:
    rounded: Bytes = np.clip(np.rint(values), 0, BYTE).astype(np.uint8)
    return rounded
