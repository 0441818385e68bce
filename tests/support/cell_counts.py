"""Pixel counts of random images under three corruptions, drawn by a number."""

from __future__ import annotations

import random
from typing import Any

CLASSES, CELLS = 4, 3
Cells = list[list[tuple[int, int, int]]]


def image(seed: int, *, right: float = 0.6, pixels: int = 100) -> tuple[list[int], Cells]:
    """A target (K,), and of each cell (class, found, predicted) of the classes that were predicted.

    The target depends on the seed alone; class 3 is neither there nor predicted.
    """
    truth = random.Random(seed).choices(range(CLASSES), weights=[5, 3, 1, 0], k=pixels)
    chance = random.Random(f"{seed}/{right}")
    cells = []
    for _ in range(CELLS):
        said = [label if chance.random() < right else chance.randrange(CLASSES - 1) for label in truth]
        pairs = list(zip(truth, said, strict=True))
        rows = [(c, sum(t == s == c for t, s in pairs), said.count(c)) for c in range(CLASSES)]
        cells.append([row for row in rows if row[2]])
    return [truth.count(label) for label in range(CLASSES)], cells


def dense(rows: list[tuple[int, int, int]], target: list[int]) -> Any:
    """Found, there and predicted of every class in one cell of an image."""
    known = {label: (found, given) for label, found, given in rows}
    columns = [known.get(label, (0, 0)) for label in range(CLASSES)]
    return [found for found, _ in columns], target, [given for _, given in columns]
