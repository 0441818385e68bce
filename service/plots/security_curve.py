"""Accuracy at every radius, from attacks that look for the smallest perturbation, with a band."""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.contract.results import CurveBreakdown, EvaluationResult
from assay.service.plots import theme
from assay.service.plots.curve import NORMS
from assay.service.plots.marks import APART, band, beside, between, category, interval, points, quantity
from assay.service.plots.series import (
    LabelledResults,
    attack_labels,
    attack_name,
    ends_of,
    interval_text,
    label_of_one,
    labels_of,
)
from assay.service.plots.theme import DataRows, Vega

TITLE = "Security curves"
STEP = "step-after"
NEEDS = (
    "an attack that looks for the smallest perturbation (ddn, fmn, sigma_zero, hop_skip_jump, carlini_wagner)"
)


def security_curve(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A panel for each norm, a staircase for each attack and job; None without such an attack."""
    several = len(jobs) > 1
    panels: dict[str, DataRows] = {}
    sentences: list[str] = []
    for label, job in zip(labels_of(jobs), jobs, strict=True):
        names = attack_labels(job.results.evaluations)
        for row in job.results.evaluations:
            steps = [part for part in row.breakdown if isinstance(part, CurveBreakdown)]
            if not steps:
                continue
            line = f"{label}: {attack_name(row, names)}" if several else attack_name(row, names)
            norm = NORMS[steps[0].norm]
            panels.setdefault(norm, []).extend(_points(line, steps))
            sentences.append(f"{line}, {norm}: {_told(row, steps)}")
    if not panels:
        return None
    body = beside([_panel(norm, steps) for norm, steps in panels.items()], resolve=APART)
    description = f"{TITLE}: {'; '.join(sentences)}."
    return theme.frame("security_curve", TITLE, body, description=description, subtitle=label_of_one(jobs))


def _told(row: EvaluationResult, steps: Sequence[CurveBreakdown]) -> str:
    first, last = steps[0].metrics["curve_top1"].value or 0.0, steps[-1].metrics["curve_top1"].value or 0.0
    text = f"{theme.percent(first)} at 0, {theme.percent(last)} from {steps[-1].epsilon:.4g} on"
    if (median := row.metrics.get("median_distance")) is None:
        return text
    middle = "above all distances found" if median.value is None else f"{median.value:.4g}"
    return f"median {middle}, {text}"


def _points(line: str, steps: Sequence[CurveBreakdown]) -> DataRows:
    points: DataRows = []
    for place, step in enumerate(steps):
        metric = step.metrics["curve_top1"]
        if metric.value is None:
            continue
        low, high = ends_of(metric)
        points.append(
            {
                "attack": line,
                "x": step.epsilon,
                "value": metric.value,
                "low": low,
                "high": high,
                "shown": theme.percent(metric.value),
                "interval": interval_text(metric),
                "place": place,
            }
        )
    return points


def _panel(norm: str, steps: DataRows) -> Vega:
    order = list(dict.fromkeys(step["attack"] for step in steps))
    told = theme.cycled("attack", order, title="Attack")
    x = quantity("x", title=f"radius ({norm})", axis={"tickCount": 6})
    y = theme.share_axis("value", "Accuracy")
    tooltip = [
        category("attack"),
        quantity("x", title="radius", format=".4~g"),
        category("shown", title="accuracy"),
        interval(),
    ]
    encoding: Vega = {"x": x, "y": y, "color": told["color"], "order": {"field": "place"}, "tooltip": tooltip}
    inside = band({"x": x, **between("y", y, "low", "high"), "color": told["color"]}, interpolate=STEP)
    hover: Vega = {  # Invisible points carry the tooltips.
        "mark": {"type": "point", "opacity": 0, "size": 60},
        "encoding": {"x": x, "y": y, "color": told["color"], "tooltip": tooltip},
    }
    # A mark on each line's last step tells the legend's lines apart without colour.
    last = list({step["attack"]: step for step in steps}.values())
    marks = {"data": {"values": last}, **points(x, y, told, tooltip, size=45)}
    return {
        "data": {"values": theme.with_lines(steps, "attack", order)},
        "layer": [inside, *theme.dashed_lines(len(order), encoding, interpolate=STEP), hover, marks],
    }
