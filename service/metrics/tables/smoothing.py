"""Certified accuracy of a smoothed classifier, from the votes of its examples under noise.

Cohen et al. 2019, "Certified Adversarial Robustness via Randomized Smoothing", section 4: the certified
accuracy at a radius r is the share of examples with the right class and a certified radius of at least r.
Each certificate may be wrong with probability alpha, and holds in the open L2 ball of its radius. All numbers
are of the smoothed classifier, none of the model itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.contract.results import Metric, SmoothedBreakdown
from assay.service.metrics.analyses.svg import Panel, Series, draw
from assay.service.metrics.paired import Pair, PairedMetrics, PairedShares, Rows
from assay.service.metrics.statistics.estimates import mean, proportion
from assay.service.metrics.statistics.paired_estimates import Estimator, FirstOf, PairedEstimates, ratio_of
from assay.service.metrics.table import Context, OutcomeTable, Summary, columns_of, units_of

__all__ = ["Smoothed"]

ABSTAINED = -1
MAX_CURVES = 4  # Curves of the plot; more noise levels are in the table.


class Smoothed(OutcomeTable):
    """Votes of each example: of each noise level the class (-1: abstained), its votes and the radius."""

    name = "smoothed"
    columns = columns_of("id label smoothed_correct prediction radius votes draws forward backward")
    units = units_of(
        proportion="smoothed_top1 smoothed_certified_top1 smoothed_abstained", distance="smoothed_mean_radius"
    )

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The smoothed classifier of the first noise level; all levels and radii in the breakdown.

        `smoothed_top1`: share with the right class, with the confidence of a certificate.
        `smoothed_abstained`: share on which the smoothed classifier abstains. `smoothed_mean_radius`: mean
        certified L2 radius, 0 where it abstains or is wrong. `smoothed_certified_top1`, in the breakdown:
        share that is right with a radius of at least r.
        """
        sigmas, radii = context.params["sigmas"], sorted(set(context.params["radii"]))
        parts: list[SmoothedBreakdown] = []
        for level, sigma in enumerate(sigmas):
            parts.append(SmoothedBreakdown(sigma=sigma, radius=None, metrics=_of_level(rows, level)))
            certified = _certified(rows, level)
            for radius in radii:
                share = _share([found is not None and found >= radius for found in certified])
                metrics = {"smoothed_certified_top1": share}
                parts.append(SmoothedBreakdown(sigma=sigma, radius=radius, metrics=metrics))
        return Summary(dict(parts[0].metrics), parts, plot=_plot(rows, sigmas))

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's test of the accuracies at the first noise level; its other metrics are linearised."""
        others = {
            "smoothed_abstained": Estimator(_abstentions, ratio_of, largest=1.0),
            "smoothed_mean_radius": Estimator(_radii, ratio_of),
        }
        return FirstOf(
            PairedShares(pair, {"smoothed_top1": "smoothed_correct"}), PairedEstimates(pair, others)
        )


def _abstentions(rows: Rows) -> list[tuple[float, int]] | None:
    return [(float(predictions[0] == ABSTAINED), 1) for predictions in rows["prediction"]]


def _radii(rows: Rows) -> list[tuple[float, int]] | None:
    return [(found or 0.0, 1) for found in _certified(rows, 0)]


def _of_level(rows: Rows, level: int) -> dict[str, Metric]:
    certified = _certified(rows, level)
    abstained = [predictions[level] == ABSTAINED for predictions in rows["prediction"]]
    return {
        "smoothed_top1": _share([found is not None for found in certified]),
        "smoothed_abstained": _share(abstained, higher_is_better=False),
        "smoothed_mean_radius": mean([found or 0.0 for found in certified], "smoothed_mean_radius", lowest=0),
    }


def _certified(rows: Rows, level: int) -> list[float | None]:
    return [
        radii[level] if predictions[level] == label else None
        for label, predictions, radii in zip(rows["label"], rows["prediction"], rows["radius"], strict=True)
    ]


def _share(flags: Sequence[bool], *, higher_is_better: bool = True) -> Metric:
    return proportion(sum(flags), len(flags), higher_is_better=higher_is_better)


def _plot(rows: Rows, sigmas: Sequence[float]) -> str | None:
    """Certified accuracy against the radius: a step function for each noise level."""
    curves = []
    for level, sigma in enumerate(sigmas[:MAX_CURVES]):
        certified = _certified(rows, level)
        known = sorted(found for found in certified if found is not None)
        if known:
            points = [(0.0, len(known) / len(certified))]  # Right of radius i, i + 1 certificates less hold.
            points += [(r, (len(known) - place - 1) / len(certified)) for place, r in enumerate(known)]
            curves.append(Series(f"sigma {sigma:g}", tuple(dict(points).items()), style="steps"))
    if not curves:
        return None
    title = "Smoothed classifier: certified accuracy"
    ends = (0.0, 1.05 * max(one.points[-1][0] for one in curves))
    panel = Panel(
        title, "certified L2 radius", "share of examples", tuple(curves), ends, (0, 1), legend="top"
    )
    return draw([panel])
