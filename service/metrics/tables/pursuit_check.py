"""The pursuit of RPC-Attention over all examples, from the rows of `workers/evaluation/pursuit_check.py`.

Values of layers and iterations are means over examples of means over heads, with an interval over examples;
values of the whole model are of the last iteration, the output of a layer, averaged over layers.

Legend: n examples, L layers with RPC-Attention, I iterations of all of these together, layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from assay.service.contract.results import Metric, PursuitBreakdown
from assay.service.metrics.analyses.analysis_estimates import (
    mean,
    mean_over_parts,
    means_of,
    paired_means,
    unmeasured,
)
from assay.service.metrics.analyses.svg import Panel, Series, draw, measured, span
from assay.service.metrics.paired import Pair, PairedMetrics, PairedShares, Rows
from assay.service.metrics.statistics.estimates import proportion
from assay.service.metrics.statistics.paired_estimates import FirstOf
from assay.service.metrics.table import Column, Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["PursuitCheck"]

ARMS = ("no_sparse", "threshold_code", "threshold_paper", "dual_sign_minus", "dual_sign_plus")
PLANTED = ("noise", "occlusion", "adversarial")
TAGS = ("unplanted", *PLANTED)
CURVE = 17  # points of a layer's curve

OF_ITERATIONS = {  # Metric to column: a value of each layer and iteration.
    "nonzero_share": "nonzero",
    **{f"nonzero_share_{kind}": f"nonzero_{kind}" for kind in PLANTED},
    "sparse_norm": "sparse_norm",
    "residual": "residual",
    "effective_rank": "effective_rank",
    **{f"auroc_{tag}": f"auroc_{tag}" for tag in TAGS},
}
OF_LAYERS = {  # Metric to column: a value of each layer.
    "keys_effective_rank": "keys_effective_rank",
    **{f"keys_auroc_{tag}": f"keys_auroc_{tag}" for tag in TAGS},
}
ACCURACIES = {"top1": "correct_model_clean", **{f"top1_{arm}": f"correct_{arm}_clean" for arm in ARMS}}
NOT_SHARES = ("sparse_norm", "residual", "effective_rank", "keys_effective_rank")
NOT_FINITE = "the keys of some example are 0 or not finite, or S or L is not finite"


class PursuitCheck(OutcomeTable):
    """S, L and the constraint in each layer and iteration of each example, and its answers under each arm.

    Columns: `nonzero`, `sparse_norm`, `residual`, `effective_rank` and `auroc_*` are lists of I values, the
    columns `keys_*` of L, `curve` of 17 L, and `correct_ARM_CONDITION` are flags.
    """

    name = "pursuit_check"
    columns = (
        *columns_of("id nonzero sparse_norm residual effective_rank keys_effective_rank curve"),
        Column("S that is not 0 in corrupted images", pattern="nonzero_[a-z]+"),
        Column("AUROC of the tokens of S and of the keys", pattern="(keys_)?auroc_[a-z]+"),
        Column("whether the prediction is right, by arm and condition", pattern="correct_[a-z_]+"),
        *columns_of("forward backward"),
    )
    units: ClassVar[Units] = {
        **dict.fromkeys([*OF_ITERATIONS, *OF_LAYERS, *ACCURACIES], "proportion"),
        **dict.fromkeys(NOT_SHARES, "number"),
    }
    undefined: ClassVar[Reasons] = dict.fromkeys([*OF_ITERATIONS, *OF_LAYERS], NOT_FINITE)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The rows of all shards as one: metrics of the last iteration, averaged over layers.

        `nonzero_share` of the entries of S, also of the corrupted images (`nonzero_share_KIND`);
        `sparse_norm`, |S| / |K|; `residual`, |K - L - S| / |K|; `effective_rank` of L, and
        `keys_effective_rank`; `auroc_KIND` of |S| for the corrupted tokens, `auroc_unplanted` for the same
        tokens of the image as it is, and `keys_auroc_KIND` of the keys. Then `top1` of the model and of each
        arm, `top1_ARM`. The breakdown has all layers and iterations, and the accuracies of all arms under
        each corruption.
        """
        places = _places(context.facts[0])
        lasts = [index for index, (_, _, last) in enumerate(places) if last]
        known = {name: column for name, column in OF_ITERATIONS.items() if column in rows}
        of_layers = {name: column for name, column in OF_LAYERS.items() if column in rows}
        metrics = {name: _over(rows[column], lasts, name) for name, column in known.items()}
        metrics |= {name: _over(rows[column], range(len(lasts)), name) for name, column in of_layers.items()}
        metrics |= {name: _share(rows[column]) for name, column in ACCURACIES.items() if column in rows}
        breakdown = [*_parts(rows, places, known, of_layers), *_arms(rows, context.facts[0]["arms"])]
        plot = _plot(rows, places, breakdown, metrics)
        return Summary(metrics, breakdown, unmeasured(metrics, NOT_FINITE), plot)

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's test of the accuracies, sign flips of each example's means over layers."""
        values = {
            **{name: _of_last(column) for name, column in OF_ITERATIONS.items()},
            **{name: means_of(column) for name, column in OF_LAYERS.items()},
        }
        bounded = [name for name in values if name not in NOT_SHARES]
        return FirstOf(PairedShares(pair, ACCURACIES), paired_means(pair, values, bounded))


def _of_last(column: str) -> Callable[[Rows], list[float | None]]:
    """Each example's average over layers, in the last iteration of each layer."""

    def values(rows: Rows) -> list[float | None]:
        if column not in rows:
            return []
        each = zip(rows[column], rows["keys_effective_rank"], strict=True)
        return [
            mean_over_parts(row[len(row) // len(layers) - 1 :: len(row) // len(layers)])
            for row, layers in each
        ]

    return values


class _Place(NamedTuple):
    """One of the I values of a list: its layer, its iteration from 1, and whether it is the layer's last."""

    layer: int
    iteration: int
    last: bool


def _places(facts: Mapping[str, Any]) -> list[_Place]:
    return [
        _Place(layer, iteration, iteration == count)
        for layer, count in zip(facts["layers"], facts["iterations"], strict=True)
        for iteration in range(1, count + 1)
    ]


def _over(values: Sequence[Sequence[float | None]], indices: Sequence[int], name: str) -> Metric:
    each = [mean_over_parts([row[index] for index in indices]) for row in values]
    return _metric(each, name, name)


def _metric(values: Sequence[float | None], name: str, key: str) -> Metric:
    share = name not in NOT_SHARES
    return mean(values, key, higher_is_better=share, bounded=share)


def _share(flags: Sequence[Any]) -> Metric:
    return proportion(sum(map(bool, flags)), len(flags), higher_is_better=True)


def _parts(
    rows: Rows, places: Sequence[_Place], of_iterations: Mapping[str, str], of_layers: Mapping[str, str]
) -> Iterator[PursuitBreakdown]:
    layers = 0
    for index, (layer, iteration, last) in enumerate(places):
        yield PursuitBreakdown(
            layer=layer,
            iteration=iteration,
            arm=None,
            planted=None,
            metrics={
                name: _metric([row[index] for row in rows[column]], name, f"{name}/{layer}/{iteration}")
                for name, column in of_iterations.items()
            },
        )
        if last:
            found = {
                name: _metric([row[layers] for row in rows[column]], name, f"{name}/{layer}")
                for name, column in of_layers.items()
            }
            layers += 1
            yield PursuitBreakdown(layer=layer, iteration=None, arm=None, planted=None, metrics=found)


def _arms(rows: Rows, arms: Sequence[str]) -> Iterator[PursuitBreakdown]:
    for arm in (None, *arms):
        for kind in (None, *PLANTED):
            column = f"correct_{arm or 'model'}_{kind or 'clean'}"
            if (arm is not None or kind is not None) and column in rows:
                found = {"top1": _share(rows[column])}
                yield PursuitBreakdown(layer=None, iteration=None, arm=arm, planted=kind, metrics=found)


def _plot(
    rows: Rows, places: Sequence[_Place], breakdown: Sequence[PursuitBreakdown], metrics: Mapping[str, Metric]
) -> str:
    """By iteration share of S, residual and rank; spectrum of L; AUROCs; first, middle and last layer."""
    layers = sorted({place.layer for place in places})
    shown = sorted({layers[0], layers[len(layers) // 2], layers[-1]})
    parts = {(part.layer, part.iteration): part.metrics for part in breakdown}
    last = max(place.iteration for place in places)
    panels = [
        _by_iteration(title, name, scale, label, parts, shown, last)
        for title, name, scale, label in (
            ("S that is not 0", "nonzero_share", 100.0, "share, %"),
            ("Constraint |K - L - S| / |K|", "residual", 1.0, "mean over heads"),
            ("Effective rank of L (at 0: of K)", "effective_rank", 1.0, "mean over heads"),
        )
    ]
    return draw([*panels, _spectrum(rows, layers, shown), _aurocs(metrics)])


def _by_iteration(
    title: str,
    name: str,
    scale: float,
    label: str,
    parts: Mapping[tuple[int | None, int | None], Mapping[str, Metric]],
    layers: Sequence[int],
    last: int,
) -> Panel:
    series, heights = [], []
    for layer in layers:
        found = [(i, parts[layer, i][name]) for i in range(1, last + 1) if (layer, i) in parts]
        if name == "effective_rank":
            found = [(0, parts[layer, None]["keys_effective_rank"]), *found]
        series.append(measured(found, f"layer {layer}", "line", scale))
        heights += series[-1].heights
    x = (-0.2 if name == "effective_rank" else 0.8, last + 0.2)
    return Panel(title, "iteration", label, tuple(series), x, span(heights), whole=True, legend="top")


def _spectrum(rows: Rows, layers: Sequence[int], shown: Sequence[int]) -> Panel:
    """Mean shares of the sum of squares that the largest singular values of the last L explain."""
    series = []
    for layer in shown:
        first = CURVE * layers.index(layer)
        each = [[row[first + point] for row in rows["curve"]] for point in range(CURVE)]
        means = [mean_over_parts(values) for values in each]
        points = tuple(
            (100 * point / (CURVE - 1), 100 * value) for point, value in enumerate(means) if value is not None
        )
        series.append(Series(f"layer {layer}", points, "line"))
    title = "Explained by the largest singular values of L"
    return Panel(title, "share of all, %", "%", tuple(series), (0.0, 100.0), (0.0, 105.0))


def _aurocs(metrics: Mapping[str, Metric]) -> Panel:
    tags = [tag for tag in TAGS if f"auroc_{tag}" in metrics]
    series = []
    for label, prefix, aside in (("S", "auroc", -0.08), ("keys", "keys_auroc", 0.08)):
        found = [(x + aside, metrics[f"{prefix}_{tag}"]) for x, tag in enumerate(tags)]
        series.append(measured(found, label))
    names = {float(x): tag for x, tag in enumerate(tags)}
    title = "AUROC of the corrupted tokens"
    return Panel(title, "", "", tuple(series), (-0.5, len(tags) - 0.5), (0.0, 1.02), names=names)
