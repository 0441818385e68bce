"""J_proj over all examples, per layer, from the measurements of `workers/evaluation/projection_loss.py`.

With x_i = ||phi||^2 - ||h||^2 of example i, a mean over its heads and tokens: the layer's J is the mean of
x_i, and its released form the logarithm of that mean. x_i may overflow a float; so means are taken of x_i /
e^s, s the layer's largest log ||phi||^2.

Intervals are over examples. For a logarithm: the logarithm of the ends. For the average of the layers'
logarithms: the interval of its linearisation, (1/L) sum_l (x_il / J_l - 1), around the value.

Legend: n examples, L layers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from assay.service.contract.results import LayerBreakdown, Metric, Warning
from assay.service.metrics.analyses.analysis_estimates import mean, undefined
from assay.service.metrics.analyses.svg import Panel, Series, draw, measured, span
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics import estimates
from assay.service.metrics.statistics.intervals import mean_bounds
from assay.service.metrics.statistics.paired_estimates import Estimator, Linear, PairedEstimates
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, columns_of, units_of

__all__ = ["ProjectionLoss"]

MAX_EXPONENT = 700.0  # e^709 is near the largest float
COLUMNS = ("log_phi", "output", "negative", "terms")
ENDS = ("value", "ci_low", "ci_high")


@dataclass(frozen=True)
class _Layer:
    """One layer: x_i = scaled_i e^log_scale, None where one is not finite; and shares of negative terms."""

    number: int
    log_scale: float
    scaled: list[float] | None
    negative: list[float]

    @property
    def n(self) -> int:
        return len(self.negative)

    @property
    def mean(self) -> float | None:
        return None if self.scaled is None else math.fsum(self.scaled) / self.n


class ProjectionLoss(OutcomeTable):
    """The terms of J_proj in each layer of each example."""

    name = "projection_loss"
    columns = columns_of("id log_phi output negative terms forward backward")
    units = units_of(number="projection_loss log_projection_loss", proportion="negative_terms")
    undefined: ClassVar[Reasons] = dict.fromkeys(
        ("projection_loss", "log_projection_loss"),
        "it is not finite, or the logarithm of what is not positive, in some layer",
    )

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The rows of all shards as one, with metrics of all layers together and of each.

        `projection_loss` (form "paper": J_proj; its average over layers) or `log_projection_loss` (form
        "released": log J_proj; the average of the layers' logarithms), and `negative_terms`, the share of the
        terms ||phi(q_i)||^2 - ||h_i||^2 of single heads and tokens that are negative. Logarithms of
        non-positive values, and values too large for a float, are None.
        """
        released = context.params["form"] == "released"
        numbers = context.facts[0]["layers"]
        layers = [_layer(rows, place, number) for place, number in enumerate(numbers)]
        name = "log_projection_loss" if released else "projection_loss"
        each = [_of_layer(layer, name) for layer in layers]
        overall = _average_of_logs(layers, each) if released else _average(layers)
        breakdown = [
            LayerBreakdown(layer=layer.number, metrics={name: metric, "negative_terms": _negative([layer])})
            for layer, metric in zip(layers, each, strict=True)
        ]
        return Summary(
            metrics={name: overall, "negative_terms": _negative(layers)},
            breakdown=breakdown,
            warnings=_warnings(layers, each, name),
            plot=_plot(breakdown, name),
        )

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of means over layers, a linearised test of the logarithms."""
        estimators = {
            "projection_loss": Estimator(_losses),
            "log_projection_loss": Estimator(_rows, _paired_logs),
            "negative_terms": Estimator(_shares, largest=1.0),
        }
        return PairedEstimates(pair, estimators)


def _layer(columns: Mapping[str, Sequence[Any]], place: int, number: int) -> _Layer:
    logs, outputs, negative, terms = ([row[place] for row in columns[name]] for name in COLUMNS)
    shares = [count / of for count, of in zip(negative, terms, strict=True)]
    if None in logs or None in outputs:
        return _Layer(number, 0.0, None, shares)
    # Both parts of x_i are at most 1 in units of e^s.
    scale = max(*logs, *(math.log(output) for output in outputs if output > 0))
    scaled = [
        math.exp(log - scale) - (math.exp(math.log(output) - scale) if output > 0 else 0.0)
        for log, output in zip(logs, outputs, strict=True)
    ]
    return _Layer(number, scale, scaled, shares)


def _of_layer(layer: _Layer, name: str) -> Metric:
    if layer.scaled is None:
        return undefined(layer.n)
    found = mean(layer.scaled, f"{name}/{layer.number}")
    log = name == "log_projection_loss"
    return found.model_copy(
        update={key: _unscaled(getattr(found, key), layer.log_scale, log) for key in ENDS}
    )


def _unscaled(value: float | None, log_scale: float, log: bool) -> float | None:
    """value e^log_scale or its logarithm; None where it overflows a float or was not measured."""
    if value is None:
        return None
    if log:
        return math.log(value) + log_scale if value > 0 else None
    if abs(log_scale) < MAX_EXPONENT:
        product = value * math.exp(log_scale)
        return product if math.isfinite(product) else None
    exponent = math.log(abs(value)) + log_scale if value else -math.inf
    return math.copysign(math.exp(exponent), value) if exponent < MAX_EXPONENT else None


def _average(layers: Sequence[_Layer]) -> Metric:
    n = layers[0].n
    if any(layer.scaled is None for layer in layers):
        return undefined(n)
    scale = max(layer.log_scale for layer in layers)
    rows = [
        math.fsum(layer.scaled[row] * math.exp(layer.log_scale - scale) for layer in layers if layer.scaled)
        / len(layers)
        for row in range(n)
    ]
    found = mean(rows, "projection_loss")
    return found.model_copy(update={key: _unscaled(getattr(found, key), scale, log=False) for key in ENDS})


def _average_of_logs(layers: Sequence[_Layer], each: Sequence[Metric]) -> Metric:
    """The average over layers of log J; without a value where one layer has none."""
    n = layers[0].n
    if any(metric.value is None for metric in each):
        return undefined(n)
    logs = _linear_logs(layers)
    bounds = mean_bounds(logs.terms, seed="metric/log_projection_loss")
    return estimates.measured(logs.value, bounds, n, higher_is_better=False)


def _linear_logs(layers: Sequence[_Layer]) -> Linear:
    """The average of the layers' logarithms, and its linearisation; every layer's mean is positive."""
    value = math.fsum(math.log(layer.mean) + layer.log_scale for layer in layers if layer.mean) / len(layers)
    influences = [
        math.fsum(layer.scaled[row] / layer.mean - 1 for layer in layers if layer.scaled and layer.mean)
        / len(layers)
        for row in range(layers[0].n)
    ]
    return Linear(value, [value + one for one in influences])


def _paired_logs(examples: Sequence[Sequence[Sequence[float]]]) -> Linear | None:
    columns = dict(zip(COLUMNS, zip(*examples, strict=True), strict=True))
    layers = [_layer(columns, place, place) for place in range(len(examples[0][0]))]
    if any(layer.mean is None or layer.mean <= 0 for layer in layers):
        return None
    return _linear_logs(layers)


def _rows(rows: Rows) -> list[tuple[Sequence[float], ...] | None]:
    every = zip(*(rows[name] for name in COLUMNS), strict=True)
    return [None if None in row[0] or None in row[1] else row for row in every]


def _losses(rows: Rows) -> list[float | None]:
    """J_proj of each example, the average over layers; None where it overflows a float."""
    return [
        None
        if row is None or max(row[0]) > MAX_EXPONENT
        else math.fsum(math.exp(log) - output for log, output in zip(*row[:2], strict=True)) / len(row[0])
        for row in _rows(rows)
    ]


def _shares(rows: Rows) -> list[float]:
    pairs = zip(rows["negative"], rows["terms"], strict=True)
    return [
        math.fsum(count / of for count, of in zip(negative, terms, strict=True)) / len(negative)
        for negative, terms in pairs
    ]


def _negative(layers: Sequence[_Layer]) -> Metric:
    shares = [math.fsum(row) / len(layers) for row in zip(*(layer.negative for layer in layers), strict=True)]
    return mean(shares, "negative_terms", bounded=True)


def _warnings(layers: Sequence[_Layer], each: Sequence[Metric], name: str) -> list[Warning]:
    missing = [layer for layer, metric in zip(layers, each, strict=True) if metric.value is None]
    reasons = {
        "q, k or v are not finite": [layer.number for layer in missing if layer.scaled is None],
        "the mean is not positive, where the released code logs NaN: the axes are far from orthonormal": [
            layer.number
            for layer in missing
            if layer.mean is not None and layer.mean <= 0 and name == "log_projection_loss"
        ],
    }
    known = [number for numbers in reasons.values() for number in numbers]
    reasons["it is too large for a float; take form released"] = [
        layer.number for layer in missing if layer.number not in known
    ]
    return [
        Warning(
            code="undefined_metric",
            message=f"{name} has no value in layers {', '.join(map(str, numbers))}, and so not over all:"
            f" {reason}",
            evidence={"metrics": [name], "layers": numbers},
        )
        for reason, numbers in reasons.items()
        if numbers
    ]


def _plot(breakdown: Sequence[LayerBreakdown], name: str) -> str:
    shares = [
        (float(part.layer or 0), 100 * (part.metrics["negative_terms"].value or 0)) for part in breakdown
    ]
    log = name == "log_projection_loss"
    title = "log J_proj (natural logarithm)" if log else "J_proj"
    loss = measured((part.layer or 0, part.metrics[name]) for part in breakdown)
    negative = Series("terms below 0", tuple(shares))
    x = (-0.5, max(x for x, _ in shares) + 0.5)
    return draw(
        [
            Panel("Projection loss by layer", "layer", title, (loss,), x, span(loss.heights), whole=True),
            Panel("Terms below 0 by layer", "layer", "share, %", (negative,), x, (0, 100), whole=True),
        ]
    )
