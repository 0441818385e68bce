"""Synthetic time series: a point that draws one of six figures, with drift, noise and its own tempo.

Draws come from shake_256 of set, seed and example id, and values are rounded to thousandths: the same series
on every machine (except where a sine is at the edge of rounding).

Legend: T_i steps of series i, F = 3 features: the point's place (x, y) and speed.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval
from numpy.typing import NDArray

from assay.workers.data.formats import parameters
from assay.workers.data.formats.series import Series, Values, statistics_of

__all__ = ["motions"]

# How often x and y go back and forth in a turn, and y's phase, in turns.
FIGURES = {
    "circle": (1, 1, 0.25),
    "line": (1, 1, 0.0),
    "bow": (1, 2, 0.25),
    "eight": (1, 2, 0.0),
    "crown": (1, 3, 0.25),
    "wave": (1, 3, 0.0),
}
SHORTEST, LONGEST = 24, 48

TASKS = ("series",)
FACTS = {
    "classes": len(FIGURES), "channels": 3, "series": True, "longest": LONGEST, "train": 600, "test": 300,
}  # fmt: skip

HEAD = 8  # that determine a figure
TURNS = (0.8, 1.6)
SIZES = (0.6, 1.4)
TILT = 0.35  # largest rotation either way, in radians
DRIFT = 0.6  # largest way of the figure until the end

Numbers = NDArray[np.float64]


def motions(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    noise: Annotated[float, Interval(ge=0, le=10)] = 0.15,
    seed: Annotated[int, Interval(ge=0, le=2**31 - 1)] = 0,
) -> Series:
    """Figures drawn by a moving point (6 classes, 3 features, 24 to 48 steps); made on the spot.

    Each series has its own figure, tempo, size, tilt, start, drift and length.

    Args:
        split: which part: 600 series for training, 300 for evaluation.
        noise: largest random change of a coordinate, where a figure is about 1 wide.
        seed: another seed, other series.
    """
    del root
    ids = _ids(split)
    values = [_draw(identifier, seed, noise) for identifier in ids]
    return Series(
        name="motions",
        class_names=tuple(FIGURES),
        ids=ids,
        values=values,
        labels=[number % len(FIGURES) for number in range(len(ids))],
        statistics=statistics_of(values) if split == "train" else _statistics(seed, noise),
        longest=LONGEST,
    )


@cache
def _statistics(seed: int, noise: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return statistics_of([_draw(identifier, seed, noise) for identifier in _ids("train")])


def _ids(split: str) -> list[str]:
    return [f"{split}-{number:04d}" for number in range(FACTS[split])]


def _draw(identifier: str, seed: int, noise: float) -> Values:
    """A series, float32 (T_i, 3); the number in its id gives the figure."""
    key = hashlib.shake_256(f"motions/{seed}/{identifier}".encode())
    draws = np.frombuffer(key.digest(4 * (HEAD + 2 * LONGEST)), dtype="<u4") / 2**32
    length = int(SHORTEST + draws[0] * (LONGEST - SHORTEST + 1))
    turns, size, start, tilt, *drift = draws[1:HEAD]
    across, along, phase = FIGURES[list(FIGURES)[int(identifier[-4:]) % len(FIGURES)]]
    angle = 2 * np.pi * (start + _between(TURNS, turns) * np.arange(length) / length)  # (T_i,)
    figure = _between(SIZES, size) * np.stack(
        [np.sin(across * angle), np.sin(along * angle + 2 * np.pi * phase)]
    )
    place = _turned(figure, TILT * (2 * tilt - 1))  # (2, T_i)
    place += DRIFT * (2 * np.array(drift[:2])[:, None] - 1) * np.arange(length) / length
    place += noise * (2 * draws[HEAD:].reshape(2, LONGEST)[:, :length] - 1)
    speed = np.hypot(*np.diff(place, axis=1, prepend=place[:, :1]))
    return np.round(np.stack([*place, speed], axis=1), 3).astype(np.float32)


def _between(ends: tuple[float, float], share: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * share


def _turned(points: Numbers, angle: float) -> Numbers:
    cos, sin = np.cos(angle), np.sin(angle)
    turned: Numbers = np.array([[cos, -sin], [sin, cos]]) @ points
    return turned
