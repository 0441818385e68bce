"""Time series with a missing share that was filled in again.

Which values are missing is drawn for each series, keyed by the job's seed and its id: of L steps (or of F L
values) the nearest whole number to the share, without repetition. A larger share of the same series misses
what a smaller one does, and more.

    M = floor(share n + 1/2) places drawn without repetition, of n = F L values or n = L steps
    x'_t = x_t outside M, and in M, for each feature:
    linear      on the line between the nearest known steps before and after t, constant beyond them
    previous    the last known value before t; 0 before the first
    mean        0                                        x is standardised: 0 is the training set's mean

Legend: F features, L steps of a series.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.randomness import Source
from assay.workers.data.formats.series import filled
from assay.workers.evaluation.engine.series import Perturbed
from assay.workers.evaluation.engine.shard import Evaluation

__all__ = ["missing_values"]

TASKS = ("series", "series_regression")
TABLE = {"series": "attack", "series_regression": "regression"}
PASSES = ("2", "0")
FACTS = {"random_changes": True}

Imputation = Literal["linear", "previous", "mean"]


def missing_values(
    *,
    share: Annotated[float, "strength", Interval(ge=0, lt=1)] = 0.3,
    missing: Literal["values", "steps"] = "values",
    imputation: Imputation = "linear",
) -> Evaluation:
    """Accuracy or error on time series of which a share is missing.

    Args:
        share: what is missing, of each series; of a short one this may round to everything.
        missing: single values, or whole steps with all of their features.
        imputation: what replaces it: "linear" between the nearest known steps of the feature, constant
            beyond them; the "previous" known value (before the first, the mean); or the training set's
            "mean". A feature of which nothing is known gets the mean.
    """

    def change(values: Tensor, source: Source) -> Tensor:
        places = values.numel() if missing == "values" else values.shape[1]
        order = source.permutation(places)[0]
        gone = torch.zeros(places, dtype=torch.bool)
        gone[order[: int(share * places + 0.5)]] = True
        whole = gone.view_as(values) if missing == "values" else gone.expand_as(values)
        return imputed(values, whole, imputation)

    return Perturbed("missing_values", change)


def imputed(values: Tensor, gone: Tensor, imputation: Imputation) -> Tensor:
    """A standardised series (F, L) with the values in `gone`, bool (F, L), replaced; the mean is 0."""
    if imputation == "mean":
        return values.masked_fill(gone, 0.0)
    if imputation == "linear":
        known = values.masked_fill(gone, torch.nan).T.numpy()  # (L, F)
        return torch.from_numpy(np.ascontiguousarray(filled(known, [0.0] * len(values)).T))
    steps = torch.arange(values.shape[1])
    last = torch.where(gone, -1, steps).cummax(dim=1).values  # (F, L), -1 before the first known step
    return values.gather(1, last.clamp(min=0)).masked_fill(last < 0, 0.0)
