"""Items of galleries with time series, in standard deviations of each feature over the training set.

Legend: F features, T steps of a row, L steps of a series.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from assay.models.layers.series_model import split_steps
from assay.service.contract.gallery import MAX_FEATURES, MAX_ITEMS, MAX_POINTS, GallerySeries
from assay.workers.evaluation.engine.gallery.candidates import Candidates, finite
from assay.workers.evaluation.engine.ledger import ExampleOutcomes

DECIMALS = 4


def attacked_series(candidates: Candidates, outcomes: ExampleOutcomes) -> list[GallerySeries]:
    """The items of an attack on time series, from the candidates kept while it ran."""
    return [
        GallerySeries(
            id=outcomes.ids[kept.row],
            rank=rank,
            succeeded=kept.broken,
            label=int(outcomes.labels[kept.row]),
            before=kept.before,
            after=kept.after,
            **points(kept.clean, kept.changed),
        )
        for rank, kept in candidates.chosen()
    ]


def perturbed_rows(ranks: Mapping[int, int], correct: Tensor, still: Tensor) -> list[int]:
    """The rows that a gallery shows of a random perturbation: errors that it caused, then others, by rank.

    `correct`: whether each series was right before, bool (n,); `still`: whether it is right now, bool (n,).
    """
    rows = [row for row in ranks if correct[row]]
    return sorted(rows, key=lambda row: (bool(still[row]), ranks[row]))[:MAX_ITEMS]


def points(clean: Tensor, changed: Tensor) -> dict[str, Any]:
    """Fields of an item: both series, thinned, of the features that changed most, and the change's norms."""
    steps = int(split_steps(clean[None])[1].sum())
    before, after = clean[:-1, :steps].double(), changed[:-1, :steps].double()
    difference = after - before
    # Of equal changes the first features.
    largest = difference.abs().amax(1).nan_to_num(torch.inf).sort(descending=True, stable=True).indices
    features = sorted(largest[:MAX_FEATURES].tolist())
    every = max(1, -(-steps // MAX_POINTS))
    return {
        "features": features,
        "all_features": len(before),
        "steps": steps,
        "every": every,
        "clean": _listed(before[features, ::every]),
        "perturbed": _listed(after[features, ::every]),
        "linf": finite(float(difference.abs().max())),
        "l2": finite(float(difference.square().sum().sqrt())),
    }


def _listed(values: Tensor) -> list[list[float]]:
    return [[round(value, DECIMALS) for value in row] for row in values.tolist()]
