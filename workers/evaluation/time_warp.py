"""Time series played at a speed that changes.

Um et al., "Data augmentation of wearable sensor data for Parkinson's disease monitoring using convolutional
neural networks", ICMI 2017 (time-warping): a smooth random speed, whose integral is the new time, rescaled so
that a series ends where it did. Deviation: the speed is exp(strength * z), so that time never runs
backwards, with z linear between standard normal draws at equally spaced knots.

    x'(t) = x(T(t)),    T(t) proportional to the integral to t of exp(strength z(s)) ds,    T(end) = end

Legend: F features, L steps of a series.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.randomness import Source
from assay.workers.evaluation.engine.series import Perturbed
from assay.workers.evaluation.engine.shard import Evaluation

__all__ = ["time_warp"]

TASKS = ("series", "series_regression")
TABLE = {"series": "attack", "series_regression": "regression"}
PAPER = "Um et al. 2017, Data augmentation of wearable sensor data for Parkinson's disease monitoring"
PASSES = ("2", "0")
FACTS = {"random_changes": True}


def time_warp(
    *,
    strength: Annotated[float, "strength", Interval(ge=0, le=5)] = 0.5,
    knots: Annotated[int, Interval(ge=2, le=64)] = 4,
) -> Evaluation:
    """Accuracy or error on time series whose speed changes smoothly; both ends stay in place.

    Args:
        strength: standard deviation of the logarithm of the speed at a knot; 0 changes nothing.
        knots: points at which a speed is drawn, from the first step to the last.
    """

    def change(values: Tensor, source: Source) -> Tensor:
        draws = source.normal((knots,))[0].double()
        return at_times(values, warped_times(draws.numpy(), values.shape[1], strength))

    return Perturbed("time_warp", change)


def warped_times(draws: np.ndarray[tuple[int], np.dtype[np.float64]], steps: int, strength: float) -> Tensor:
    """The place of each step of the warped series in the series, (L,), rising from 0 to L - 1.

    The draws are standard normal, one for each knot; `strength` is the standard deviation of the logarithm of
    the speed.
    """
    if steps == 1:
        return torch.zeros(1, dtype=torch.float64)
    between = (np.arange(steps - 1) + 0.5) / (steps - 1)  # the middle of each interval of two steps
    speed = np.exp(strength * np.interp(between, np.linspace(0, 1, len(draws)), draws))
    times = np.concatenate([[0.0], np.cumsum(speed)])
    return torch.from_numpy(times * ((steps - 1) / times[-1]))


def at_times(values: Tensor, times: Tensor) -> Tensor:
    """The series (F, L) at these times in [0, L - 1], (M,): linear between its steps, (F, M)."""
    last = values.shape[1] - 1
    times = times.clamp(0, last)
    before = times.floor().long()
    share = (times - before).to(values.dtype)
    after = (before + 1).clamp(max=last)
    return values[:, before] * (1 - share) + values[:, after] * share
