"""Striped images in four directions: a set that any model learns in seconds, made on the spot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

import torch
from annotated_types import Interval
from torch import Tensor

from assay.workers.data.formats.arrays import ArrayDataSet
from assay.workers.data.formats.sampling import example_key

__all__ = ["stripes"]

TASKS = ("classification",)
FACTS = {"classes": 4, "channels": 1, "size": 16, "train": 400, "test": 100}

DIRECTIONS = ("horizontal", "rising", "vertical", "falling")
SIDE = 16


def stripes(
    root: Path | None,
    split: Literal["train", "test"],
    *,
    period: Annotated[float, Interval(ge=2, le=16)] = 4.0,
) -> ArrayDataSet:
    """Striped images of 16 x 16 pixels in four directions, with a phase of its own for each example.

    Args:
        root: not used; nothing is read from ASSAY_DATA_ROOT.
        split: which part.
        period: distance of two stripes, in pixels.

    Returns:
        The part; pixels are bytes / 255.
    """
    del root
    ids = [f"{split}-{number:03d}" for number in range(FACTS[split])]
    labels = torch.arange(len(ids)) % len(DIRECTIONS)
    pixels = torch.stack([_stripes(*example, period) for example in zip(ids, labels.tolist(), strict=True)])
    return ArrayDataSet(
        name="stripes",
        class_names=DIRECTIONS,
        ids=ids,
        labels=labels,
        shape=(1, SIDE, SIDE),
        white=255,
        mean=(0.5,),
        std=(0.35,),
        read=lambda indices: pixels[torch.tensor(indices, dtype=torch.int64)],
    )


def _stripes(identifier: str, label: int, period: float) -> Tensor:
    """One image, uint8 (1, 16, 16); the phase comes from the id."""
    phase = 2 * math.pi * int.from_bytes(example_key("stripes", identifier)[:4], "big") / 2**32
    angle = math.pi * label / len(DIRECTIONS)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    distance = rows * math.cos(angle) + columns * math.sin(angle)  # (16, 16), in pixels
    brightness = 0.5 + 0.5 * torch.sin(2 * math.pi * distance / period + phase)
    return (255 * brightness).round().to(torch.uint8)[None]
