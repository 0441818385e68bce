"""The eigenvector check over all examples, from what `workers/evaluation/eigenvector_check.py` measured.

Every value is a mean over examples of means over heads, columns and layers, with a bootstrap interval over
examples. The quotients gamma have heavy tails (a divisor may be near 0), and so have their means; the cosine
has none.

Legend: n examples, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from assay.service.contract.results import LayerBreakdown, Metric, Warning
from assay.service.metrics.analyses.summary import Summary, mean
from assay.service.metrics.analyses.svg import Panel, Series, draw

CONTROLS: tuple[Literal["random", "permuted"], ...] = ("random", "permuted")
# Metric to column; of the controls the first four.
METRICS = {
    "gamma_difference_mean": "difference_mean",
    "gamma_difference_std": "difference_std",
    "eigenvector_cosine": "cosine",
    "offset": "offset",
    "eigenvalue_max": "largest",
    "eigenvalue_min": "smallest",
    "eigenvalue_mean": "average",
    "eigenvalue_median": "middle",
    "eigenvalue_sum": "trace",
}
OF_CONTROLS = tuple(METRICS)[:4]
# The range of the bins of each histogram.
RANGES = {"cosines": (0.0, 1.0), "spreads": (-20.0, 4.0)}


def summarise(
    columns: Mapping[str, Sequence[Any]],
    *,
    params: Mapping[str, Any],
    evidence: Sequence[Mapping[str, Any]],
    device: Mapping[str, Any],
) -> Summary:
    """Merges the rows of all shards; the arguments are those of `Summarise`.

    Returns:
        Metrics of all layers together and of each: `gamma_difference_mean`, `gamma_difference_std` (of
        |gamma_i - gamma_j|), `eigenvector_cosine` (1 for eigenvectors), `offset` (0 where the values can be
        what Theorem 1 says), `eigenvalue_max`, `_min`, `_mean`, `_median` (of the constants |mean gamma|, as
        published) and `eigenvalue_sum` (of all true eigenvalues of K~ / N, at most 1). The first four of
        random and permuted values are in the breakdown, over all layers.
    """
    del params, device
    layers = evidence[0]["layers"]
    metrics = {name: _metric([_mean(row) for row in columns[key]], name) for name, key in METRICS.items()}
    breakdown = [
        LayerBreakdown(
            layer=None,
            values=control,
            metrics={
                name: _metric(columns[f"{control}_{METRICS[name]}"], f"{control}/{name}")
                for name in OF_CONTROLS
            },
        )
        for control in CONTROLS
    ]
    breakdown += [
        LayerBreakdown(
            layer=number,
            metrics={
                name: _metric([row[place] for row in columns[key]], f"{name}/{number}")
                for name, key in METRICS.items()
            },
        )
        for place, number in enumerate(layers)
    ]
    return Summary(
        metrics=metrics, breakdown=breakdown, warnings=_warnings(columns, metrics), plot=_plot(columns)
    )


def _mean(row: Sequence[float | None]) -> float | None:
    known = [value for value in row if value is not None]
    return math.fsum(known) / len(known) if len(known) == len(row) else None


def _metric(values: Sequence[float | None], name: str) -> Metric:
    return mean(values, name, higher_is_better="eigenvector_cosine" in name)


def _warnings(columns: Mapping[str, Sequence[Any]], metrics: Mapping[str, Metric]) -> list[Warning]:
    found = []
    sums = {name: sum(columns[name]) for name in ("skipped", "elements", "undefined")}
    if sums["skipped"]:
        found.append(
            Warning(
                code="quotients_left_out",
                message=f"{sums['skipped']} of {sums['elements']} quotients gamma would have been a division"
                f" by (nearly) 0 and were left out, {sums['undefined']} whole columns among them",
                evidence=sums,
            )
        )
    missing = [name for name, metric in metrics.items() if metric.value is None]
    if missing:
        found.append(
            Warning(
                code="undefined_metric",
                message=f"{', '.join(missing)}: no value, because for some examples it is not finite: keys or"
                " values are not, or no column could be divided by",
                evidence={"metrics": missing},
            )
        )
    return found


def _plot(columns: Mapping[str, Sequence[Any]]) -> str:
    panels = []
    for name, title, label in (
        ("cosines", "|cosine| of a and K~ a; 1 for an eigenvector", "absolute cosine"),
        ("spreads", "Mean of |gamma_i - gamma_j| over pairs", "power of ten"),
    ):
        sources = {"the model's values": name} | {f"{one} values": f"{one}_{name}" for one in CONTROLS}
        shares = {label: _shares(columns[key]) for label, key in sources.items()}
        low, high = RANGES[name]
        bins = len(shares["the model's values"])
        filled = [place for one in shares.values() for place, share in enumerate(one) if share] or [0]
        first, last = min(filled), max(filled) + 1
        series = [
            Series(
                label,
                tuple((low + (high - low) * p / bins, [*one, 0.0][p]) for p in range(first, last + 1)),
                "steps",
            )
            for label, one in shares.items()
        ]
        top = 1.5 * max(max(one) for one in shares.values()) or 1.0  # with room for the legend
        x = (series[0].points[0][0], series[0].points[-1][0])
        panels.append(Panel(title, label, "share of columns, %", tuple(series), x, (0.0, top), legend="top"))
    return draw(panels)


def _shares(histograms: Sequence[Sequence[int]]) -> list[float]:
    """The share of columns in each bin, in percent, all examples together."""
    counts = [sum(bins) for bins in zip(*histograms, strict=True)]
    total = max(sum(counts), 1)
    return [100 * count / total for count in counts]
