"""Time series that begin earlier or later.

Each is moved by a whole number of steps, drawn keyed by the job's seed and its id: uniform among those from 1
to the largest shift, either way. What leaves at one end is lost; at the other end the first or the last step
is repeated.

    x'_t = x_{min(max(t - d, 1), L)},    |d| drawn from 1 to the largest shift, either way

Legend: F features, L steps of a series.
"""

from __future__ import annotations

from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.randomness import Source
from assay.workers.evaluation.engine.series import Perturbed
from assay.workers.evaluation.engine.shard import Evaluation

__all__ = ["time_shift"]

TASKS = ("series", "series_regression")
TABLE = {"series": "attack", "series_regression": "regression"}
PASSES = ("2", "0")
FACTS = {"random_changes": True}


def time_shift(*, largest: Annotated[float, "strength", Interval(ge=0, le=1)] = 0.2) -> Evaluation:
    """Accuracy or error on time series moved along the time axis.

    Args:
        largest: largest shift, as a share of a series' own steps, rounded down; a series too short for a
            shift of one step stays as it is.
    """

    def change(values: Tensor, source: Source) -> Tensor:
        most = int(largest * values.shape[1])
        if most == 0:
            return values
        place = int(source.below((), 2 * most))  # -most to -1, then 1 to most
        return shifted(values, place - most + (place >= most))

    return Perturbed("time_shift", change)


def shifted(values: Tensor, steps: int) -> Tensor:
    """A series (F, L) moved to so many steps later, or earlier where negative; its ends are repeated."""
    places = (torch.arange(values.shape[1]) - steps).clamp(0, values.shape[1] - 1)
    return values[:, places]
