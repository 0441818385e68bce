"""Distances between heads over all examples, from the measurements of `workers/evaluation/head_distance.py`.

`head_distance` is the mean over examples and pairs of heads, averaged over layers, with a bootstrap interval
over examples. `head_distance_std` is the standard deviation over the same examples and pairs, in each layer,
averaged over layers: sqrt(mean d^2 - (mean d)^2).

Legend: n examples, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

from assay.service.contract.results import LayerBreakdown, Metric, Warning
from assay.service.metrics.analyses.analysis_estimates import mean, undefined
from assay.service.metrics.analyses.svg import Panel, Series, draw, span
from assay.service.metrics.paired import Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

METRICS = ("head_distance", "head_distance_std")
NOT_FINITE = "the attention of some example is not finite"
Values = Sequence[Sequence[float | None]]


class HeadDistance(OutcomeTable):
    """Mean distance and mean squared distance of the pairs of heads in each layer of each example."""

    name = "head_distance"
    columns = columns_of("id distance squared_distance forward backward")
    units: ClassVar[Units] = dict.fromkeys(METRICS, "number")
    undefined: ClassVar[Reasons] = dict.fromkeys(METRICS, NOT_FINITE)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The rows of all shards as one.

        Returns:
            `head_distance` and `head_distance_std`, over all layers and of each.
        """
        layers = context.facts[0]["layers"]
        distances, squares = rows["distance"], rows["squared_distance"]
        metrics = _metrics(distances, squares, "all")
        breakdown = [
            LayerBreakdown(
                layer=number, metrics=_metrics(_only(distances, place), _only(squares, place), f"{number}")
            )
            for place, number in enumerate(layers)
        ]
        missing = [name for name, metric in metrics.items() if metric.value is None]
        warnings = [
            Warning(
                code="undefined_metric",
                message=f"{', '.join(missing)}: no value, because {NOT_FINITE}",
                evidence={"metrics": missing},
            )
        ]
        return Summary(metrics, breakdown, warnings if missing else [], _plot(breakdown))


def _only(values: Values, place: int) -> list[list[float | None]]:
    return [[row[place]] for row in values]


def _metrics(distances: Values, squares: Values, part: str) -> dict[str, Metric]:
    """Both metrics of some layers, each an average over these."""
    each = [
        None if None in row else math.fsum(x for x in row if x is not None) / len(row) for row in distances
    ]
    return {
        "head_distance": mean(each, f"head_distance/{part}", higher_is_better=True),
        "head_distance_std": _spread(distances, squares, part),
    }


def _spread(distances: Values, squares: Values, part: str) -> Metric:
    """The standard deviation over examples and pairs, averaged over layers.

    Its interval is that of its linearisation at the means m of d and M of d^2 of each layer, with s =
    sqrt(M - m^2): the average over layers of (d_i^2 - M - 2 m (d_i - m)) / (2 s).
    """
    n, influences, value = len(distances), [0.0] * len(distances), 0.0
    if any(None in row for row in [*distances, *squares]):
        return undefined(n)
    layers = len(distances[0])
    for layer in range(layers):
        first, second = ([row[layer] or 0.0 for row in rows] for rows in (distances, squares))
        m, square = math.fsum(first) / n, math.fsum(second) / n
        deviation = math.sqrt(max(square - m**2, 0.0))
        value += deviation / layers
        if deviation > 0:
            for row in range(n):
                moved = second[row] - square - 2 * m * (first[row] - m)
                influences[row] += moved / (2 * deviation * layers)
    found = mean(influences, f"head_distance_std/{part}")
    assert found.ci_low is not None
    assert found.ci_high is not None
    ends = {"ci_low": max(value + found.ci_low, 0.0), "ci_high": value + found.ci_high}
    return found.model_copy(update={"value": value, **ends})


def _plot(breakdown: Sequence[LayerBreakdown]) -> str:
    known = [
        (float(part.layer), metric.value, (metric.ci_low, metric.ci_high))
        for part in breakdown
        if part.layer is not None and (metric := part.metrics["head_distance"]).value is not None
    ]
    series = Series(
        "mean and 95 % interval",
        tuple((x, y) for x, y, _ in known),
        whiskers=tuple((low, high) for *_, (low, high) in known),
    )
    values = [value for _, y, ends in known for value in (y, *ends) if value is not None]
    x = (-0.5, max(float(part.layer or 0) for part in breakdown) + 0.5)
    return draw(
        [Panel("Distance between heads by layer", "layer", "L2", (series,), x, span(values), whole=True)]
    )
