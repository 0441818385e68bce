"""Tiny folders of stored corrupted images as CIFAR-10-C has them: CORRUPTION.npy and labels.npy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

IMAGES = 12


def array_of(corruption: str, images: int = IMAGES) -> np.ndarray:
    """The images of a corruption at all severities, uint8 (5 images, 32, 32, 3)."""
    random = np.random.default_rng(list(corruption.encode()))
    return random.integers(0, 256, (5 * images, 32, 32, 3), dtype=np.uint8)


def labels_of(classes: int, images: int = IMAGES) -> np.ndarray:
    """Of every severity the same, (5 images,)."""
    return np.tile(np.random.default_rng(classes).integers(0, classes - 1, images), 5).astype(np.uint8)


def write_arrays(
    folder: Path, corruptions: Sequence[str], classes: int, change: str = "none", images: int = IMAGES
) -> None:
    """Writes such a folder, if asked for with one pixel or one image's label changed."""
    folder.mkdir(parents=True)
    labels = labels_of(classes, images)
    if change == "label":
        labels[::images] += 1
    np.save(folder / "labels.npy", labels)
    for name in corruptions:
        pixels = array_of(name, images)
        if change == "pixel":
            pixels[-1, -1, -1, -1] ^= 1
        np.save(folder / f"{name}.npy", pixels)
