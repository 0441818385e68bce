"""Synthetic segmentation set: simple shapes on a shaded background; H = W = 64 are height and width.

Draws come from shake_256 of set, seed and example id, in integers: the same images on every machine.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Interval
from numpy.typing import NDArray

from assay.workers.data.formats import parameters
from assay.workers.data.formats.segmentation import IGNORE, SegmentationArrays

__all__ = ["shapes"]

SIDE = 64
CLASS_NAMES = ("background", "disc", "square", "triangle", "diamond")

TASKS = ("segmentation",)
FACTS = {"classes": len(CLASS_NAMES), "channels": 3, "size": SIDE, "train": 800, "test": 200}

MEAN = (0.2505, 0.2498, 0.2519)  # Of the train pixels of seed 0, in [0, 1]
STD = (0.2108, 0.2108, 0.2084)

MAX_SHAPES = 3
SHAPE_BYTES = 7  # kind, row, column, radius, colour
GROUND_BYTES = 6  # colours at the upper and lower edge
GROUND = 96  # the background is darker, shapes are lighter than 127: every shape is visible
LIGHT = 128
NOISE = 16  # max byte change, on every channel of every pixel
RADII = (8, 16)
MARGIN = 8

Grid = NDArray[np.int64]
Mask = NDArray[np.bool_]


def shapes(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    seed: Annotated[int, Interval(ge=0, le=2**31 - 1)] = 0,
) -> SegmentationArrays:
    """Discs, squares, triangles and diamonds on a shaded ground (64 x 64, 5 classes); made on the spot.

    One to three shapes of random position, size and colour; later ones cover earlier ones. Boundary pixels
    of a shape are ignored (255), and noise is added everywhere.

    Args:
        split: which part: 800 images for training, 200 for evaluation.
        seed: another seed, other images.
    """
    del root
    ids = [f"{split}-{number:04d}" for number in range(FACTS[split])]
    drawn = [_draw(identifier, seed) for identifier in ids]
    return SegmentationArrays(
        name="shapes",
        class_names=CLASS_NAMES,
        ids=ids,
        pixels=torch.from_numpy(np.stack([pixels for pixels, _ in drawn])),
        maps=torch.from_numpy(np.stack([labels for _, labels in drawn])),
        mean=MEAN,
        std=STD,
    )


def _draw(identifier: str, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    head = 1 + GROUND_BYTES + MAX_SHAPES * SHAPE_BYTES
    key = hashlib.shake_256(f"shapes/{seed}/{identifier}".encode())
    draws = np.frombuffer(key.digest(head + 3 * SIDE * SIDE), dtype=np.uint8).astype(np.int64)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    upper, lower = draws[1 : 1 + GROUND_BYTES].reshape(2, 3, 1, 1) % GROUND
    pixels = (upper * (SIDE - 1 - rows) + lower * rows) // (SIDE - 1)  # (3, H, W)
    labels = np.zeros((SIDE, SIDE), dtype=np.uint8)
    for shape in draws[1 + GROUND_BYTES : head].reshape(MAX_SHAPES, SHAPE_BYTES)[: 1 + draws[0] % MAX_SHAPES]:
        kind = int(1 + shape[0] % (len(CLASS_NAMES) - 1))
        row, column = MARGIN + shape[1:3] % (SIDE - 2 * MARGIN)
        radius = int(RADII[0] + shape[3] % (RADII[1] - RADII[0] + 1))
        whole = _inside(kind, rows - row, columns - column, radius)
        pixels = np.where(whole, (LIGHT + shape[4:] % GROUND).reshape(3, 1, 1), pixels)
        labels[whole] = IGNORE
        labels[_inside(kind, rows - row, columns - column, radius - 1)] = kind
    noise = draws[head:].reshape(3, SIDE, SIDE) % (2 * NOISE + 1) - NOISE
    return (pixels + noise).clip(0, 255).astype(np.uint8), labels


def _inside(kind: int, down: Grid, right: Grid, radius: int) -> Mask:
    across = abs(right)
    if CLASS_NAMES[kind] == "disc":
        covered: Mask = down**2 + right**2 <= radius**2
    elif CLASS_NAMES[kind] == "square":
        covered = 5 * np.maximum(abs(down), across) <= 4 * radius
    elif CLASS_NAMES[kind] == "triangle":
        covered = (abs(down) <= radius) & (2 * across <= down + radius)
    else:
        covered = abs(down) + across <= radius
    return covered
