"""Accuracy left by each attack at an epsilon against its passes, on the same examples."""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.plots import theme
from assay.service.plots.marks import beside, category, heading, points, quantity
from assay.service.plots.series import LabelledResults, attack_labels, attack_name, ball_text
from assay.service.plots.theme import DataRows, Vega

TITLE = "Accuracy against passes"
NEEDS = "one job with two attacks of the same epsilon, and that ended after plots were introduced"
NARROW = 150  # Width of several panels
MAX_PANELS = 4  # of the epsilons with the most attacks

_Curve = list[tuple[float, float]]


def strength(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A staircase for each attack, a panel for each norm and epsilon; None without two attacks."""
    # A point (x, y): y of the examples hold out where the mean of passes, forward and backward, is x.
    if len(jobs) != 1:
        return None
    job = jobs[0]
    rows = job.results.evaluations
    names = attack_labels(rows)
    panels: dict[str, dict[str, _Curve]] = {}
    for place, tallied in sorted(job.tallies.items()):
        points = tallied.get("spent")
        if place < len(rows) and points and (ball := ball_text(rows[place])) is not None:
            panels.setdefault(ball, {})[attack_name(rows[place], names)] = points
    chosen = {ball: found for ball, found in panels.items() if len(found) > 1}
    if not chosen:
        return None
    most = sorted(chosen, key=lambda ball: -len(chosen[ball]))[:MAX_PANELS]
    order = list(dict.fromkeys(name for ball in most for name in chosen[ball]))
    built = [_panel(ball, chosen[ball], order) for ball in chosen if ball in most]
    if len(built) > 1:
        built = [{**panel, "width": NARROW} for panel in built]
    sentences = [
        f"{ball}: "
        + ", ".join(
            f"{name} {theme.percent(points[-1][1])} with {points[-1][0]:.4g}"
            for name, points in found.items()
        )
        for ball, found in chosen.items()
        if ball in most
    ]
    description = f"{TITLE}, per example: {'; '.join(sentences)}."
    body, subtitle = beside(built), job.label
    if len(built) == 1:
        del body["title"]
        subtitle = f"{subtitle}: {next(iter(chosen))}"
    return theme.frame("strength", TITLE, body, description=description, subtitle=subtitle)


def _panel(ball: str, curves: dict[str, _Curve], order: Sequence[str]) -> Vega:
    steps: DataRows = [
        {"attack": name, "passes": x, "accuracy": y, "place": place}
        for name, curve in curves.items()
        for place, (x, y) in enumerate(curve)
        if x > 0
    ]
    ends = [max(own, key=lambda point: point["place"]) for own in _by_attack(steps)]
    told = theme.cycled("attack", order, title="Attack")
    axis = {"tickCount": 5, "format": "~s"}
    x = quantity("passes", title="Passes per example", scale={"type": "log"}, axis=axis)
    y = theme.share_axis("accuracy", "Accuracy left")
    tooltip = [
        category("attack"),
        quantity("passes", title="passes per example", format=".4~g"),
        quantity("accuracy", format=".1%"),
    ]
    dots = {"data": {"values": ends}, **points(x, y, told, tooltip, size=45)}
    encoding: Vega = {"x": x, "y": y, "color": told["color"], "order": {"field": "place"}, "tooltip": tooltip}
    return {
        "title": heading(ball, offset=10),
        "data": {"values": theme.with_lines(steps, "attack", order)},
        "layer": [*theme.dashed_lines(len(order), encoding, interpolate="step-after"), dots],
    }


def _by_attack(points: DataRows) -> list[DataRows]:
    found: dict[str, DataRows] = {}
    for point in points:
        found.setdefault(point["attack"], []).append(point)
    return list(found.values())
