"""Explained shares over all examples, from the measurements of `workers/evaluation/attention_spectrum.py`.

Every value is a mean over examples of means over heads, with an interval over examples; the value of all
layers together is the average over layers. The plot has the curves of at most three layers: the first,
middle and last analysed layer.

Legend: n examples, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from assay.service.contract.results import LayerBreakdown, Metric
from assay.service.metrics.analyses.analysis_estimates import mean, mean_over_parts, paired_means, unmeasured
from assay.service.metrics.analyses.svg import Panel, Series, draw, measured
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, columns_of, units_of

__all__ = ["AttentionSpectrum"]

METRICS = {  # Metric to column; the second is divided by the number of tokens.
    "explained_by_largest": "largest",
    "rank_90": "rank_90",
    "rank_90_share": "rank_90",
    "effective_rank": "effective_rank",
}
SHARES = ("explained_by_largest", "rank_90_share")
NOT_FINITE = "a matrix of some example is not finite, or is 0"


class AttentionSpectrum(OutcomeTable):
    """Shares that singular values explain in each layer of each example; curves one layer after another."""

    name = "attention_spectrum"
    columns = columns_of("id curve largest rank_90 effective_rank tokens forward backward")
    units = units_of(proportion="explained_by_largest rank_90_share", number="rank_90 effective_rank")
    undefined: ClassVar[Reasons] = dict.fromkeys(METRICS, NOT_FINITE)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The rows of all shards as one, with metrics of all layers together and of each.

        `explained_by_largest`: the share that the largest singular value explains; `rank_90`: how many
        explain 90 %, and `rank_90_share`, as a share of the tokens; `effective_rank`.
        """
        layers = context.facts[0]["layers"]
        each = {name: _values(rows, name) for name in METRICS}
        metrics = {name: _metric(_means(name)(rows), name) for name in METRICS}
        breakdown = [
            LayerBreakdown(
                layer=number,
                metrics={
                    name: _metric([row[place] for row in values], f"{name}/{number}")
                    for name, values in each.items()
                },
            )
            for place, number in enumerate(layers)
        ]
        return Summary(metrics, breakdown, unmeasured(metrics, NOT_FINITE), _plot(rows, breakdown))

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of each example's means over layers."""
        return paired_means(pair, {name: _means(name) for name in METRICS}, SHARES)


def _values(rows: Rows, name: str) -> list[list[float | None]]:
    values: Sequence[Sequence[float | None]] = rows[METRICS[name]]
    if name != "rank_90_share":
        return [list(row) for row in values]
    return [
        [None if value is None else value / count for value, count in zip(row, counts, strict=True)]
        for row, counts in zip(values, rows["tokens"], strict=True)
    ]


def _means(name: str) -> Callable[[Rows], list[float | None]]:
    return lambda rows: list(map(mean_over_parts, _values(rows, name)))


def _metric(values: Sequence[float | None], name: str) -> Metric:
    return mean(
        values, name, higher_is_better=name.startswith("explained"), bounded=name.split("/")[0] in SHARES
    )


def _plot(rows: Rows, breakdown: Sequence[LayerBreakdown]) -> str:
    numbers = [part.layer or 0 for part in breakdown]
    shown = sorted({0, len(numbers) // 2, len(numbers) - 1})
    curves = tuple(
        Series(f"layer {numbers[place]}", points, "line")
        for place in shown
        if (points := _curve([_part(row, place, len(numbers)) for row in rows["curve"]]))
    )
    metrics = (part.metrics["rank_90_share"] for part in breakdown)
    ranks = measured(zip(numbers, metrics, strict=True), scale=100)
    x, whole = (-0.5, max(numbers) + 0.5), (0.0, 100.0)
    title = "Explained by the largest singular values"
    explained = Panel(title, "share of all, %", "%", curves, whole, (0.0, 105.0))
    title = "Values that explain 90 %"
    return draw([explained, Panel(title, "layer", "share of all, %", (ranks,), x, whole, whole=True)])


def _part(row: Sequence[float | None], place: int, parts: int) -> Sequence[float | None]:
    size = len(row) // parts
    return row[place * size : (place + 1) * size]


def _curve(examples: Sequence[Sequence[float | None]]) -> tuple[tuple[float, float], ...]:
    found: list[Any] = []
    last = len(examples[0]) - 1
    for place, shares in enumerate(zip(*examples, strict=True)):
        known = [share for share in shares if share is not None]
        if len(known) < len(shares):
            return ()
        found.append((100 * place / last, 100 * math.fsum(known) / len(known)))
    return tuple(found)
