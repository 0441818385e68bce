"""Synthetic time series with a number to predict: the rate of a pulse, in beats per minute.

Draws come from shake_256 of set, seed and example id; values are rounded to thousandths and targets to
hundredths: the same series on every machine (except where a sine is at the edge of rounding).

Legend: T_i steps of series i at 8 per second; F = 3 features: sensor, its change per step, disturbing motion.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Annotated, Literal

import numpy as np
from annotated_types import Interval

from assay.workers.data.formats import parameters
from assay.workers.data.formats.series import TargetSeries, Values, statistics_of

__all__ = ["pulses"]

SHORTEST, LONGEST = 40, 64
RATE = 8.0  # steps per second
BEATS = (50.0, 150.0)  # per minute

TASKS = ("series_regression",)
FACTS = {"classes": 1, "channels": 3, "series": True, "longest": LONGEST, "train": 600, "test": 300}

HEAD = 8  # that determine a pulse
OVERTONE = 0.25  # of the second harmonic


def pulses(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    noise: Annotated[float, Interval(ge=0, le=10)] = 0.1,
    seed: Annotated[int, Interval(ge=0, le=2**31 - 1)] = 0,
) -> TargetSeries:
    """Pulses of 50 to 150 beats per minute (3 features, 40 to 64 steps), whose rate is the target.

    Each series has its own rate, phase, strength, motion, drift and length; made on the spot.

    Args:
        split: which part: 600 series for training, 300 for evaluation.
        noise: largest random change of the sensor, where a pulse is about 1 high.
        seed: another seed, other series.
    """
    del root
    ids = _ids(split)
    drawn = [_draw(identifier, seed, noise) for identifier in ids]
    statistics, targets = _training(seed, noise)
    return TargetSeries(
        name="pulses",
        ids=ids,
        values=[values for values, _ in drawn],
        targets=[target for _, target in drawn],
        statistics=statistics,
        training_targets=targets,
        longest=LONGEST,
    )


@cache
def _training(
    seed: int, noise: float
) -> tuple[tuple[tuple[float, ...], tuple[float, ...]], tuple[float, ...]]:
    drawn = [_draw(identifier, seed, noise) for identifier in _ids("train")]
    return statistics_of([values for values, _ in drawn]), tuple(target for _, target in drawn)


def _ids(split: str) -> list[str]:
    return [f"{split}-{number:04d}" for number in range(FACTS[split])]


def _draw(identifier: str, seed: int, noise: float) -> tuple[Values, float]:
    key = hashlib.shake_256(f"pulses/{seed}/{identifier}".encode())
    draws = np.frombuffer(key.digest(4 * (HEAD + LONGEST)), dtype="<u4") / 2**32
    length = int(SHORTEST + draws[0] * (LONGEST - SHORTEST + 1))
    beats = round(float(BEATS[0] + (BEATS[1] - BEATS[0]) * draws[1]), 2)
    phase, strength, way, place, drift, tempo = draws[2:HEAD]
    seconds = np.arange(length) / RATE
    angle = 2 * np.pi * (beats / 60 * seconds + phase)  # (T_i,)
    pulse = (0.7 + 0.6 * strength) * (np.sin(angle) + OVERTONE * np.sin(2 * angle))
    motion = way * np.sin(2 * np.pi * ((0.2 + 0.3 * tempo) * seconds + place))
    sensor = pulse + 0.5 * motion + (2 * drift - 1) * np.arange(length) / length
    sensor += noise * (2 * draws[HEAD : HEAD + length] - 1)
    change = np.diff(sensor, prepend=sensor[:1])
    return np.round(np.stack([sensor, change, motion], axis=1), 3).astype(np.float32), beats
