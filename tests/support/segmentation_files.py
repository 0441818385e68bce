"""Small images and annotations on disk, for the tests of the segmentation sets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_pair(image: Path, annotation: Path, values: list[int], size: tuple[int, int], seed: int) -> None:
    """A random image and an annotation of `size` (width, height), in vertical stripes of the values."""
    for path in (image, annotation):
        path.parent.mkdir(parents=True, exist_ok=True)
    width, height = size
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(image)
    stripes = np.array(values, dtype=np.uint8)[np.arange(width) * len(values) // width]
    Image.fromarray(np.tile(stripes, (height, 1))).save(annotation)


def change_pixel(path: Path, value: int | tuple[int, int, int]) -> None:
    """Give a pixel near the middle another value."""
    with Image.open(path) as image:
        image.putpixel((image.width // 2, image.height // 2), value)
        image.save(path)
