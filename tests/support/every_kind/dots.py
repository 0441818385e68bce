"""Images with a number of dots, made on the spot: data of a package's own task."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from assay.workers.data.formats.arrays import ArrayDataSet

__all__ = ["dots"]

TASKS = ("counting",)
FACTS = {"classes": 1, "channels": 1, "size": 8, "train": 400, "test": 100}
SIDE, MOST = 8, 9


def dots(root: Path | None, split: Literal["train", "test"]) -> ArrayDataSet:
    """Images of 8 x 8 pixels with 0 to 9 bright ones.

    Args:
        root: not used.
        split: which part.
    """
    del root
    count, draws = FACTS[split], torch.Generator().manual_seed(len(split))
    labels = torch.arange(count) % (MOST + 1)
    order = torch.rand(count, SIDE * SIDE, generator=draws).argsort(1)
    pixels = (255 * (order < labels[:, None])).to(torch.uint8).view(count, 1, SIDE, SIDE)
    data = ArrayDataSet(
        name="dots",
        class_names=("dots",),
        ids=[f"{split}-{number:03d}" for number in range(count)],
        labels=labels,
        shape=(1, SIDE, SIDE),
        white=255,
        mean=(0.0,),
        std=(1.0,),
        read=lambda indices: pixels[torch.tensor(indices, dtype=torch.int64)],
    )
    data.task = "counting"
    return data
