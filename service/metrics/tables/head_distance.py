"""Distances between heads over all examples, from the measurements of `workers/evaluation/head_distance.py`.

`head_distance` is the mean over examples and pairs of heads, averaged over layers, with an interval over
examples. `head_distance_std` is the standard deviation over the same examples and pairs, in each layer,
averaged over layers: sqrt(mean d^2 - (mean d)^2).

Legend: n examples, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from assay.service.contract.results import LayerBreakdown, Metric
from assay.service.metrics.analyses.analysis_estimates import mean, mean_over_parts, undefined, unmeasured
from assay.service.metrics.analyses.svg import Panel, draw, measured, span
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics import estimates
from assay.service.metrics.statistics.intervals import mean_bounds
from assay.service.metrics.statistics.paired_estimates import Estimator, Linear, PairedEstimates
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["HeadDistance"]

METRICS = ("head_distance", "head_distance_std")
NOT_FINITE = "the attention of some example is not finite"
LayerValues = Sequence[Sequence[float | None]]


class HeadDistance(OutcomeTable):
    """Mean distance and mean squared distance of the pairs of heads in each layer of each example."""

    name = "head_distance"
    columns = columns_of("id distance squared_distance forward backward")
    units: ClassVar[Units] = dict.fromkeys(METRICS, "number")
    undefined: ClassVar[Reasons] = dict.fromkeys(METRICS, NOT_FINITE)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The rows of all shards as one."""
        layers = context.facts[0]["layers"]
        distances, squares = rows["distance"], rows["squared_distance"]
        metrics = _metrics(distances, squares, "all")
        breakdown = [
            LayerBreakdown(
                layer=number, metrics=_metrics(_only(distances, place), _only(squares, place), f"{number}")
            )
            for place, number in enumerate(layers)
        ]
        return Summary(metrics, breakdown, unmeasured(metrics, NOT_FINITE), _plot(breakdown))

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of each example's mean distance, a linearised test of the standard deviation."""
        estimators = {
            "head_distance": Estimator(lambda rows: list(map(mean_over_parts, rows["distance"]))),
            "head_distance_std": Estimator(_moments, _linear_spread),
        }
        return PairedEstimates(pair, estimators)


def _only(values: LayerValues, place: int) -> list[list[float | None]]:
    return [[row[place]] for row in values]


def _metrics(distances: LayerValues, squares: LayerValues, part: str) -> dict[str, Metric]:
    each = list(map(mean_over_parts, distances))
    return {
        "head_distance": mean(each, f"head_distance/{part}", higher_is_better=True),
        "head_distance_std": _spread(distances, squares, part),
    }


def _spread(distances: LayerValues, squares: LayerValues, part: str) -> Metric:
    """The standard deviation over examples and pairs, averaged over layers."""
    moments = _moments({"distance": distances, "squared_distance": squares})
    known = [one for one in moments if one is not None]
    if len(known) < len(moments):
        return undefined(len(moments))
    spread = _linear_spread(known)
    bounds = mean_bounds(spread.terms, seed=f"metric/head_distance_std/{part}")
    if bounds.low is not None:
        bounds = bounds._replace(low=max(bounds.low, 0.0))
    return estimates.measured(spread.value, bounds, len(known), higher_is_better=False)


def _moments(rows: Rows) -> list[tuple[tuple[float, float], ...] | None]:
    """(d, d^2) of each example in each layer."""
    pairs = zip(rows["distance"], rows["squared_distance"], strict=True)
    return [
        None if None in first or None in second else tuple(zip(first, second, strict=True))
        for first, second in pairs
    ]


def _linear_spread(moments: Sequence[tuple[tuple[float, float], ...]]) -> Linear:
    """The standard deviation, and its linearisation."""
    # At the means m of d and M of d^2 of each layer, with s = sqrt(M - m^2), the influence of example i is
    # the average over layers of (d_i^2 - M - 2 m (d_i - m)) / (2 s).
    n, layers, value = len(moments), len(moments[0]), 0.0
    influences = [0.0] * n
    for layer in range(layers):
        m, square = (math.fsum(row[layer][power] for row in moments) / n for power in (0, 1))
        deviation = math.sqrt(max(square - m**2, 0.0))
        value += deviation / layers
        if deviation > 0:
            for place, row in enumerate(moments):
                moved = row[layer][1] - square - 2 * m * (row[layer][0] - m)
                influences[place] += moved / (2 * deviation * layers)
    return Linear(value, [value + one for one in influences])


def _plot(breakdown: Sequence[LayerBreakdown]) -> str:
    distances = measured((part.layer or 0, part.metrics["head_distance"]) for part in breakdown)
    x = (-0.5, max(float(part.layer or 0) for part in breakdown) + 0.5)
    title, y = "Distance between heads by layer", span(distances.heights)
    return draw([Panel(title, "layer", "L2", (distances,), x, y, whole=True)])
