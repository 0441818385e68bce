"""Accuracy at every radius, from the smallest perturbation of each example that one attack found.

An example that was wrong before the attack has distance 0, a broken example the norm of its perturbation, and
an example that was never broken an infinite distance. Accuracy at radius e is the share of examples with a
distance above e: a step function, an upper bound of the robust accuracy, and exact only as far as the attack
finds the smallest perturbations. Its area up to a radius E is the mean of min(distance, E).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from assay.service.contract.results import CurveBreakdown, Metric
from assay.service.metrics.paired import Rows
from assay.service.metrics.statistics.estimates import bounded_mean, measured, proportion
from assay.service.metrics.statistics.intervals import NO_BOUNDS, Bounds, median_bounds

COLUMNS = {"Linf": "linf", "L2": "l2", "L1": "l1", "L0": "l0"}  # Norm to outcome column.
MAX_POINTS = 64  # A curve of more steps is thinned.


def distances(rows: Rows, norm: str) -> list[float] | None:
    """The distance of each example, in [0, inf], (n,); None where the rows do not have it."""
    names = ("correct", "clean_correct", COLUMNS.get(norm, ""))
    if any(name not in rows or None in rows[name] for name in names):
        return None
    triples = zip(*(rows[name] for name in names), strict=True)
    # `before` first: in the protocol `paper` an attack may turn a wrong answer into the right one.
    return [0.0 if not before else math.inf if now else float(size) for now, before, size in triples]


def end_of_area(found: Sequence[float], area_to: float | None) -> float | None:
    """Where the area ends: as asked for, or at the largest distance that is finite; None if all are 0."""
    if area_to is not None:
        return area_to
    return max((one for one in found if one < math.inf), default=0.0) or None


def capped(found: Sequence[float], end: float) -> list[float]:
    """The examples' parts of the area, min(distance, end)."""
    return [min(one, end) for one in found]


def curve_metrics(found: Sequence[float], end: float | None) -> dict[str, Metric]:
    """Median and area of a curve of n >= 1 distances.

    `median_distance`: of all n examples; without a value where it is infinite, and without an interval where
    an end of it is. `curve_area`: of the curve up to `end` (None for no area), in the unit of the norm.
    """
    middle = statistics.median(found)
    bounds = NO_BOUNDS
    if middle < math.inf:
        # A finite number beyond all others has the order statistics of an infinite one.
        beyond = 2 * max(one for one in found if one < math.inf) + 1
        low, high, method = median_bounds([min(one, beyond) for one in found])
        finite = high is not None and high < beyond
        bounds = Bounds(low, high, method) if finite or low is None else NO_BOUNDS
    metrics = {"median_distance": measured(middle if middle < math.inf else None, bounds, len(found))}
    if end is not None:
        metrics["curve_area"] = bounded_mean(capped(found, end), highest=end)
    return metrics


def curve_points(found: Sequence[float], norm: str) -> list[CurveBreakdown]:
    """The curve's steps, each with its Wilson interval: at 0, and at distances spread over the examples."""
    n, finite = len(found), sorted(one for one in found if one < math.inf)
    steps = sorted({0.0, *finite})
    if len(steps) > MAX_POINTS:
        places = [round(place * (len(finite) - 1) / (MAX_POINTS - 2)) for place in range(MAX_POINTS - 1)]
        steps = sorted({0.0, *(finite[place] for place in places)})
    points = []
    for epsilon in steps:
        left = sum(one > epsilon for one in found)
        metrics = {"curve_top1": proportion(left, n, higher_is_better=True)}
        points.append(CurveBreakdown(norm=norm, epsilon=epsilon, metrics=metrics))
    return points
