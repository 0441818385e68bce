"""Discs and squares with their boxes, drawn on the spot.

Every draw comes from shake_256 of set, seed and example id, and all arithmetic is on integers.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Interval
from numpy.typing import NDArray
from torch import Tensor

from assay.workers.data.formats import parameters
from assay.workers.data.formats.arrays import ArrayDataSet

__all__ = ["drawn_boxes"]

TASKS = ("detection",)
SIDE, QUARTER = 32, 16
CLASS_NAMES = ("disc", "square")
FACTS = {"classes": len(CLASS_NAMES), "channels": 3, "size": SIDE, "train": 600, "test": 120}
MAX_SHAPES = 3
SHAPE_BYTES = 7  # class, radius, column, row, colour
RADII = (4, 6)
# Grounds are darker than GROUND, shapes lighter than LIGHT; noise changes every value by at most NOISE.
GROUND, LIGHT, NOISE = 96, 128, 16


def drawn_boxes(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    seed: Annotated[int, Interval(ge=0, le=2**31 - 1)] = 0,
) -> ArrayDataSet:
    """One to three discs and squares in quarters of an image (32 x 32, 2 classes); made on the spot.

    Args:
        split: which part: 600 images for training, 120 for evaluation.
        seed: another seed, other images.
    """
    del root
    ids = [f"{split}-{number:04d}" for number in range(FACTS[split])]
    drawn = [_draw(identifier, seed) for identifier in ids]
    pixels = torch.from_numpy(np.stack([image for image, _ in drawn]))
    data = ArrayDataSet(
        name="drawn_boxes",
        class_names=CLASS_NAMES,
        ids=ids,
        labels=torch.tensor([boxes for _, boxes in drawn], dtype=torch.float32),
        shape=(3, SIDE, SIDE),
        white=255,
        mean=(0.25, 0.25, 0.25),
        std=(0.2, 0.2, 0.2),
        read=lambda indices: pixels[torch.tensor(indices, dtype=torch.int64)],
    )
    data.task = "detection"
    return data


def boxes_at(data: ArrayDataSet, indices: list[int], size: int) -> Tensor:
    """Class, left, top, right and bottom of boxes in images of a side, (B, T, 5); class -1 for padding."""
    height, width = data.size
    scale = torch.tensor([1.0, size / width, size / height, size / width, size / height])
    return data.labels[torch.tensor(indices, dtype=torch.int64)] * scale


def _draw(identifier: str, seed: int) -> tuple[NDArray[np.uint8], list[list[int]]]:
    """An image, uint8 (3, H, W), and its boxes (T, 5)."""
    head = 5 + MAX_SHAPES * SHAPE_BYTES
    key = hashlib.shake_256(f"drawn_boxes/{seed}/{identifier}".encode())
    draws = np.frombuffer(key.digest(head + 3 * SIDE * SIDE), dtype=np.uint8).astype(np.int64)
    rows, columns = np.mgrid[0:SIDE, 0:SIDE]
    pixels = np.broadcast_to((draws[2:5] % GROUND).reshape(3, 1, 1), (3, SIDE, SIDE))
    boxes = [[-1, 0, 0, 0, 0] for _ in range(MAX_SHAPES)]
    for number in range(1 + int(draws[0]) % MAX_SHAPES):
        shape = draws[5 + number * SHAPE_BYTES :][:SHAPE_BYTES]
        label, radius = int(shape[0]) % len(CLASS_NAMES), RADII[0] + int(shape[1]) % (RADII[1] - RADII[0] + 1)
        down, right = divmod((int(draws[1]) + number) % 4, 2)
        column, row = (
            QUARTER * side + radius + int(drawn) % (QUARTER - 2 * radius)
            for side, drawn in ((right, shape[2]), (down, shape[3]))
        )
        across, away = columns - column, rows - row
        disc = across**2 + away**2 <= radius**2
        inside = disc if CLASS_NAMES[label] == "disc" else np.maximum(abs(across), abs(away)) <= radius
        pixels = np.where(inside, (LIGHT + shape[4:] % GROUND).reshape(3, 1, 1), pixels)
        boxes[number] = [label, column - radius, row - radius, column + radius + 1, row + radius + 1]
    noise = draws[head:].reshape(3, SIDE, SIDE) % (2 * NOISE + 1) - NOISE
    return (pixels + noise).clip(0, 255).astype(np.uint8), boxes
