"""Robust accuracy against epsilon as a band: verified from below, attacked from above."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from assay.service.contract.results import Bracket
from assay.service.metrics.compare.bracket import bracket_line, radius_text
from assay.service.plots.marks import beside, between, category, interval, quantity
from assay.service.plots.series import LabelledResults, interval_text
from assay.service.plots.theme import Vega, cycled, dashed_lines, frame, share_axis, shortened, with_lines

TITLE = "Robust accuracy, verified and attacked"
NEEDS = "one job with a verified evaluation and an attack in the same norm"
SIDES = ("attacked", "verified")
STEPS = ("step-after", "step-before")  # attacks count for larger radii, proofs for smaller


def bracket(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A panel for each data set and norm of a job; None for several jobs, or without a bracket."""
    # The robust accuracy is between the two: an attack counts for larger radii, a proof for smaller. Without
    # smoothed classifiers.
    if len(jobs) != 1 or not jobs[0].results.bracket:
        return None
    points = jobs[0].results.bracket
    units = list(dict.fromkeys((one.data, one.norm) for one in points))
    panels = [_panel([one for one in points if (one.data, one.norm) == unit]) for unit in units]
    description = f"{TITLE}: {'; '.join(bracket_line(one) for one in points[:8])}."
    return frame("bracket", TITLE, beside(panels), description=description, subtitle=jobs[0].label)


def _panel(points: Sequence[Bracket]) -> Vega:
    in_pixels = points[0].norm == "Linf"
    title = shortened(f"ε{' in 1/255' * in_pixels} ({points[0].norm}, {points[0].data})")
    x = quantity("x", title=title, axis={"tickCount": 6, "grid": False})
    y = share_axis("value", "Robust accuracy")
    told = cycled("side", SIDES, title="Bound")
    lines = {"x": x, "y": y, "color": told["color"], "detail": category("side")}
    tooltip = [
        category("side", title="bound"),
        category("epsilon", title="ε"),
        quantity("value", title="accuracy", format=".1%"),
        interval(),
        quantity("n"),
    ]
    steps: list[Vega] = [  # Between radii nothing was measured: a step, not a slope.
        {**layer, "mark": {**layer["mark"], "interpolate": step}}
        for layer, step in zip(dashed_lines(len(SIDES), lines), STEPS, strict=True)
    ]
    layers: list[Vega] = [
        {
            "data": {"values": _band(points, 255 if in_pixels else 1)},
            "mark": {"type": "rect", "opacity": 0.16},
            "encoding": {"x": x, "x2": {"field": "x2"}, **between("y", y, "low", "high")},
        },
        *steps,
        {
            "mark": {"type": "point", "filled": True, "size": 34, "opacity": 1},
            "encoding": {**lines, "shape": told["shape"], "tooltip": tooltip},
        },
    ]
    values = with_lines(_values(points, 255 if in_pixels else 1), "side", SIDES)
    return {"data": {"values": values}, "layer": layers}


def _band(points: Sequence[Bracket], scale: float) -> list[dict[str, Any]]:
    """Between radii: verified at the larger, attacked at the smaller; else 0 and 1."""
    return [
        {
            "x": scale * one.epsilon,
            "x2": scale * larger.epsilon,
            "low": (larger.verified.value if larger.verified else None) or 0.0,
            "high": 1.0 if one.attacked is None or one.attacked.value is None else one.attacked.value,
        }
        for one, larger in pairwise(points)
    ]


def _values(points: Sequence[Bracket], scale: float) -> list[dict[str, Any]]:
    return [
        {
            "side": side,
            "x": scale * one.epsilon,
            "epsilon": radius_text(one),
            "value": metric.value,
            "interval": interval_text(metric),
            "n": one.n,
        }
        for one in points
        for side, metric in (("attacked", one.attacked), ("verified", one.verified))
        if metric is not None
    ]
