"""Trees of stored corrupted images, CORRUPTION/SEVERITY/CLASS/IMAGE, made in a moment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from assay.service.contract.corruption_cells import Cell

# Different pictures; every file of a tree is a link to one of them.
PICTURES = 6
BANDS = 8


def write_cells(
    folder: Path, cells: Sequence[Cell], classes: Sequence[str], side: int = 224, images: int = 1
) -> None:
    """Each cell with the same images, and one more in the first class: CLASS_0.png and so on.

    An image is grey bands, so that it is read fast; which ones depends on cell, class and image.
    """
    pictures = _pictures(folder, side)
    for number, (name, severity) in enumerate(cells):
        for place, wnid in enumerate(classes):
            into = folder / name / str(severity) / wnid
            into.mkdir(parents=True)
            for image in range(images if place else images + 1):
                os.link(pictures[(number + place + image) % PICTURES], into / f"{wnid}_{image}.png")


def picture(number: int, side: int) -> Image.Image:
    """One of the pictures, (side, side), grey."""
    bands = np.random.default_rng(number).integers(0, 256, BANDS, dtype=np.uint8)
    rows = bands[np.arange(side) * BANDS // side]
    return Image.fromarray(np.repeat(rows[:, None], side, axis=1))


def change(class_folders: Path, what: str) -> None:
    """Gives an image of a cell another pixel, or another class."""
    first, second = sorted(class_folders.iterdir())[:2]
    image = first / f"{first.name}_0.png"
    if what == "pixel":
        pixels = np.array(Image.open(image))
        image.unlink()  # or all that are linked to it would change
        pixels[0, 0] = 255 - pixels[0, 0]
        Image.fromarray(pixels).save(image)
    if what == "label":
        image.rename(second / image.name)


def _pictures(folder: Path, side: int) -> list[Path]:
    place = folder / ".pictures"
    place.mkdir(parents=True, exist_ok=True)
    paths = [place / f"{number}.png" for number in range(PICTURES)]
    for number, path in enumerate(paths):
        if not path.exists():
            picture(number, side).save(path)
    return paths
