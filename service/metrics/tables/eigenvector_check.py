"""Eigenvector check over all examples, from the measurements of `workers/evaluation/eigenvector_check.py`.

Every value is a mean over examples of means over heads, columns and layers, with an interval over examples.
The quotients gamma have heavy tails (a divisor may be near 0), and so have their means; the cosine has none.

Legend: n examples, L layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from assay.service.contract.results import LayerBreakdown, Metric, Warning
from assay.service.metrics.analyses.analysis_estimates import mean, means_of, paired_means, unmeasured
from assay.service.metrics.analyses.svg import Panel, Series, draw
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["EigenvectorCheck"]

CONTROLS: tuple[Literal["random", "permuted"], ...] = ("random", "permuted")
METRICS = {  # Metric to column; controls have the first four.
    "gamma_difference_mean": "difference_mean", "gamma_difference_std": "difference_std",
    "eigenvector_cosine": "cosine", "offset": "offset", "eigenvalue_max": "largest",
    "eigenvalue_min": "smallest", "eigenvalue_mean": "average", "eigenvalue_median": "middle",
    "eigenvalue_sum": "trace",
}  # fmt: skip
OF_CONTROLS = tuple(METRICS)[:4]
OF_VALUES = (
    "cosine offset difference_mean difference_std largest smallest average middle skipped elements undefined"
    " cosines spreads"
)
OF_RANDOM, OF_PERMUTED = (" ".join(f"{control}_{name}" for name in OF_VALUES.split()) for control in CONTROLS)
NOT_FINITE = "for some examples it is not finite: keys or values are not, or no column could be divided by"
RANGES = {"cosines": (0.0, 1.0), "spreads": (-20.0, 4.0)}  # The range of the bins of each histogram.


class EigenvectorCheck(OutcomeTable):
    """Measurements per layer and example, for the model's values and for random and permuted ones."""

    name = "eigenvector_check"
    columns = columns_of(f"id trace {OF_VALUES} {OF_RANDOM} {OF_PERMUTED} forward backward")
    units: ClassVar[Units] = dict.fromkeys(METRICS, "number")
    undefined: ClassVar[Reasons] = dict.fromkeys(METRICS, NOT_FINITE)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The rows of all shards as one, with metrics of all layers together and of each.

        `gamma_difference_mean`, `gamma_difference_std` (of |gamma_i - gamma_j|), `eigenvector_cosine` (1 for
        eigenvectors), `offset` (0 where the values can be what Theorem 1 says), `eigenvalue_max`, `_min`,
        `_mean`, `_median` (of the constants |mean gamma|, as published) and `eigenvalue_sum` (of all true
        eigenvalues of K~ / N, at most 1). The first four of random and permuted values are in the breakdown,
        over all layers.
        """
        layers = context.facts[0]["layers"]
        metrics = {name: _metric(means_of(column)(rows), name) for name, column in METRICS.items()}
        return Summary(metrics, _breakdown(rows, layers), _warnings(rows, metrics), _plot(rows))

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of each example's means over layers."""
        values = {name: means_of(column) for name, column in METRICS.items()}
        return paired_means(pair, values, ("eigenvector_cosine",))


def _breakdown(columns: Rows, layers: Sequence[int]) -> list[LayerBreakdown]:
    controls = [
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
    each = [
        LayerBreakdown(
            layer=number,
            metrics={
                name: _metric([row[place] for row in columns[key]], f"{name}/{number}")
                for name, key in METRICS.items()
            },
        )
        for place, number in enumerate(layers)
    ]
    return [*controls, *each]


def _metric(values: Sequence[float | None], name: str) -> Metric:
    cosine = "eigenvector_cosine" in name
    return mean(values, name, higher_is_better=cosine, bounded=cosine)


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
    return [*found, *unmeasured(metrics, NOT_FINITE)]


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
    counts = [sum(bins) for bins in zip(*histograms, strict=True)]
    total = max(sum(counts), 1)
    return [100 * count / total for count in counts]
