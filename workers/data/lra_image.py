"""The Image task of Long Range Arena.

Tay et al., ICLR 2021; Krizhevsky 2009. A sequence is an image's 1024 grey levels, row by row, each
floor(255.5 (0.2989 R + 0.5870 G + 0.1140 B) / 255), as TensorFlow's `rgb_to_grayscale`. The last tenth of the
training images is the validation part.

The papers' code takes the level as token and 0 as padding: black pixels are left out (`black` = "padding").
By default black is a token.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from assay.workers.data.cifar10 import CLASS_NAMES, cifar10
from assay.workers.data.formats import parameters
from assay.workers.data.formats.sequences import Evaluated, TokenSequences, grey_ids, grey_levels

__all__ = ["lra_image"]

TASKS = ("sequence",)
PAPER = "Tay et al. 2021, Long Range Arena; Krizhevsky 2009, Learning Multiple Layers of Features"
FACTS = {
    "classes": 10, "words": False, "sentences": False, "pairs": False, "train": 45_000, "test": 10_000,
    "long_range_task": "image",
}  # fmt: skip

SIDE = 32
VALIDATION_SHARE = 10  # one in ten training images
WEIGHTS = np.array([0.2989, 0.5870, 0.1140], dtype=np.float32)


class CifarPart(NamedTuple):
    """Indices of a part into a split of CIFAR-10."""

    split: Literal["train", "test"]
    start: float
    stop: float


PARTS = {
    "train": CifarPart("train", 0, 1 - 1 / VALIDATION_SHARE),
    "validation": CifarPart("train", 1 - 1 / VALIDATION_SHARE, 1),
    "test": CifarPart("test", 0, 1),
}


def lra_image(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    folder: Annotated[str, "folder"] = "cifar10",
    black: Literal["token", "padding"] = "token",
    evaluated: Evaluated = "test",
) -> TokenSequences:
    """CIFAR-10 as sequences of 1024 grey levels (Long Range Arena's Image; ten classes).

    Args:
        split: which part; 45,000 images for training.
        folder: relative name of the folder, as of `cifar10`.
        black: "token": black pixels take part; "padding": they do not, as released.
        evaluated: which part is read for evaluation; "validation" is the last 5,000 training images.
    """
    part = PARTS["train" if split == "train" else evaluated]
    whole = cifar10(root, part.split, folder=folder)
    chosen = range(round(part.start * len(whole)), round(part.stop * len(whole)))

    def read(index: int) -> tuple[Tensor, ...]:
        pixels = (whole.images([chosen[index]], SIDE)[0] * 255).round()  # (3, 32, 32)
        return (grey_ids(grey_of(pixels.numpy().astype(np.uint8)), black=black),)

    return TokenSequences(
        name="lra_image",
        class_names=CLASS_NAMES,
        ids=[whole.ids[index] for index in chosen],
        labels=whole.labels[chosen.start : chosen.stop],
        vocabulary=grey_levels(black),
        read=read,
    )


def grey_of(pixels: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Grey levels (H, W) of a colour image, uint8 (3, H, W)."""
    unit = pixels.astype(np.float32) * np.float32(1 / 255)
    grey = np.tensordot(WEIGHTS, unit, axes=1)  # (H, W)
    return np.floor(grey * np.float32(255.5)).astype(np.int64)
