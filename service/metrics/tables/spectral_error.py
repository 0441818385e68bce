"""Errors of approximate attention over all examples, from `workers/evaluation/spectral_error.py`.

Every value is a mean over examples of means over heads and layers, with an interval over examples.

Legend: n examples, L layers, F numbers of features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from assay.service.contract.results import LayerBreakdown, Metric, Warning
from assay.service.metrics.analyses.analysis_estimates import mean, mean_over_parts, paired_means
from assay.service.metrics.analyses.svg import Panel, Series, draw
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.table import Column, Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["SpectralError"]

TARGETS = {  # Method to what it approximates.
    "nystrom_scores": "softmax",
    "nystromformer": "softmax",
    "linformer": "softmax",
    "performer": "softmax",
    "skyformer": "kernelized",
}
FEATURES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
KINDS = ("relative_error", "error")
COLUMNS = tuple(f"{method}_{kind}" for method in TARGETS for kind in KINDS)
EVERY = tuple(f"{column}_{count}" for column in COLUMNS for count in FEATURES)


class SpectralError(OutcomeTable):
    """Spectral norms of the differences by method: a list of L times F values, layer by layer."""

    name = "spectral_error"
    columns = (
        *columns_of("id tokens"),
        *(Column(name, optional=True) for name in COLUMNS),
        *columns_of("forward backward"),
    )
    units: ClassVar[Units] = {**dict.fromkeys(EVERY, "number"), "tokens": "count"}
    undefined: ClassVar[Reasons] = dict.fromkeys(EVERY, "for some example it is not finite")

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The rows of all shards as one; `tokens` is the mean length.

        For each method and number of features d `METHOD_relative_error_d`, |out - approximation| / |out| in
        the spectral norm, and `METHOD_error_d`, not divided.
        """
        layers = context.facts[0]["layers"]
        features = context.params["features"]
        measured = [one for one in COLUMNS if one in rows]
        metrics = {
            f"{column}_{count}": mean(_over_layers(rows, column, place, len(features)), f"{column}_{count}")
            for column in sorted(measured, key=lambda one: "relative" not in one)
            for place, count in enumerate(features)
        }
        breakdown = [
            LayerBreakdown(layer=number, metrics=_of_layer(rows, measured, features, at, number))
            for at, number in enumerate(layers)
        ]
        metrics["tokens"] = mean(rows["tokens"], "tokens", higher_is_better=True)
        return Summary(metrics, breakdown, _repeated(rows, features), _plot(metrics, features))

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of each example's means over layers."""
        features = pair.params.get("features", ())
        values = {
            f"{column}_{count}": _means(column, place, len(features))
            for column in COLUMNS
            for place, count in enumerate(features)
        }
        return paired_means(pair, {**values, "tokens": lambda rows: rows["tokens"]})


def _repeated(rows: Rows, features: Sequence[int]) -> list[Warning]:
    """The numbers of features beyond the number of tokens, where landmarks repeat."""
    tokens = max(rows["tokens"], default=0)
    beyond = [count for count in features if count > tokens]
    if not beyond:
        return []
    message = (
        f"features {', '.join(map(str, beyond))} are more than the {tokens} tokens of the longest example:"
        f" nystromformer repeats its value from {tokens} on, nystrom_scores and skyformer from"
        f" {2 * tokens} on"
    )
    evidence = {"features": beyond, "tokens": tokens}
    return [Warning(code="more_features_than_tokens", message=message, evidence=evidence)]


def _of_layer(
    rows: Rows, columns: Sequence[str], features: Sequence[int], at: int, number: int
) -> dict[str, Metric]:
    found = {}
    for column in (one for one in columns if "relative" in one):
        for place, count in enumerate(features, at * len(features)):
            name = f"{column}_{count}"
            found[name] = mean([row[place] for row in rows[column]], f"{name}/{number}")
    return found


def _over_layers(rows: Rows, column: str, place: int, features: int) -> list[float | None]:
    return [mean_over_parts(row[place::features]) for row in rows[column]]


def _means(column: str, place: int, features: int) -> Callable[[Rows], Sequence[float | None]]:
    return lambda rows: _over_layers(rows, column, place, features) if column in rows else []


def _plot(metrics: Mapping[str, Metric], features: Sequence[int]) -> str:
    panels = []
    for target in ("softmax", "kernelized"):
        series = []
        for method in (one for one, other in TARGETS.items() if other == target):
            found = [(count, metrics.get(f"{method}_relative_error_{count}")) for count in features]
            shown = [(c, m, m.value) for c, m in found if m is not None and m.value]
            points = tuple((math.log2(count), math.log10(value)) for count, _, value in shown)
            whiskers = tuple((_log(metric.ci_low), _log(metric.ci_high)) for _, metric, _ in shown)
            if points:
                series.append(Series(method, points, "line", whiskers))
        ends = [end for one in series for pair in one.whiskers for end in pair if end is not None]
        heights = [*(y for one in series for _, y in one.points), *ends] or [0.0]
        room = max(heights) - min(heights) or 1.0
        y = (min(heights) - 0.15 * room, max(heights) + 0.6 * room)
        names = {math.log2(count): str(count) for count in features}
        x = (min(names) - 0.2, max(names) + 0.2)
        title = f"Target: {target} attention" + (f", by {series[0].label}" if len(series) == 1 else "")
        label = "log10 of the relative error"
        panels.append(Panel(title, "features", label, tuple(series), x, y, legend="top", names=names))
    return draw(panels)


def _log(value: float | None) -> float | None:
    return math.log10(value) if value is not None and value > 0 else None
