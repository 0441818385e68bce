"""Complete trees of ImageNet's sets with one tiny image for each class, made in a moment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from assay.workers.data.formats.images.imagenet_classes import class_list

# Different pictures; every file of a tree is a link to one of them.
PICTURES = 6
WNIDS = class_list("imagenet")


def write_set(root: Path, name: str, *parts: str) -> Path:
    """A whole set below the root, in the folder of its archive or in parts (`val`, `train`) of it.

    The first class has two images, every other one: what the tests change is never the last image of a class.
    """
    folder = root / name.replace("_", "-")
    for part in parts or ("",):
        write_classes(folder / part, class_list(name))
    return folder


def write_classes(folder: Path, wnids: Sequence[str]) -> None:
    """One folder for each class, with `WNID_0.png` and, in the first one, `WNID_1.png`."""
    pictures = _pictures(folder)
    for number, wnid in enumerate(wnids):
        (folder / wnid).mkdir(parents=True)
        for image in range(1 if number else 2):
            os.link(pictures[(number + image) % PICTURES], folder / wnid / f"{wnid}_{image}.png")


def write_flat(folder: Path, count: int) -> None:
    """ILSVRC2012_val_00000001.png and so on, without classes."""
    pictures = _pictures(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, count + 1):
        os.link(pictures[number % PICTURES], folder / f"ILSVRC2012_val_{number:08d}.png")


def classes_of_flat() -> list[int]:
    """Labels of the 1000 images of `write_flat`, for tests of lists: image i is of class 64 + i."""
    return [(64 + number) % 1000 for number in range(1, 1001)]


def name_of(number: int, suffix: str = ".JPEG") -> str:
    return f"ILSVRC2012_val_{number:08d}{suffix}"


def lines(texts: list[str]) -> str:
    return "".join(f"{text}\n" for text in texts)


def change(folder: Path, what: str) -> None:
    """Gives the first image another pixel, or another class."""
    first, second = sorted(path for path in folder.iterdir() if not path.name.startswith("."))[:2]
    image = first / f"{first.name}_0.png"
    if what == "pixel":
        pixels = np.array(Image.open(image))
        image.unlink()  # or all that are linked to it would change
        pixels[0, 0] = 255 - pixels[0, 0]
        Image.fromarray(pixels).save(image)
    if what == "label":
        image.rename(second / image.name)


def _pictures(folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    place = folder / ".pictures"
    place.mkdir(exist_ok=True)
    paths = [place / f"{number}.png" for number in range(PICTURES)]
    for number, path in enumerate(paths):
        if not path.exists():
            coarse = np.random.default_rng(number).integers(0, 256, (3, 4, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((16, 12), Image.Resampling.BICUBIC).save(path)
    return paths


# Lists of these labels as they are passed around, by file name.
LISTS = {
    "val.txt": lines([f"{name_of(i)} {label}" for i, label in enumerate(classes_of_flat(), 1)]),
    "val_list.txt": lines([f"val/{name_of(i)} {label}" for i, label in enumerate(classes_of_flat(), 1)]),
    "imagenet2012_val_synset_codes.txt": lines(
        [f"{name_of(i)} {WNIDS[label]}" for i, label in enumerate(classes_of_flat(), 1)]
    ),
    "imagenet_2012_validation_synset_labels.txt": lines([WNIDS[label] for label in classes_of_flat()]),
    "LOC_val_solution.csv": "ImageId,PredictionString\n"
    + lines([f"{name_of(i, '')},{WNIDS[label]} 1 2 3 4 " for i, label in enumerate(classes_of_flat(), 1)]),
}
