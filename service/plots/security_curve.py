"""Accuracy at every radius, from attacks that look for the smallest perturbation, with a band."""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.contract.results import CurveBreakdown, EvaluationResult
from assay.service.plots.curve import NORMS
from assay.service.plots.series import LabelledResults, attack_labels, attack_name, interval_text, labels_of
from assay.service.plots.theme import (
    Spec,
    Values,
    cycled,
    dashed_lines,
    frame,
    percent,
    share_axis,
    with_lines,
)

TITLE = "Security curves"
NEEDS = (
    "an attack that looks for the smallest perturbation (ddn, fmn, sigma_zero, hop_skip_jump, carlini_wagner)"
)


def security_curve(jobs: Sequence[LabelledResults]) -> Spec | None:
    """A panel for each norm, a staircase for each attack and job; None without such an attack."""
    several = len(jobs) > 1
    panels: dict[str, Values] = {}
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
    built = [_panel(norm, points) for norm, points in panels.items()]
    # Of their own, so that a panel's legend has its own lines alone.
    apart = {"scale": {"color": "independent", "shape": "independent"}}
    body = built[0] if len(built) == 1 else {"vconcat": built, "resolve": apart}
    subtitle = "" if several else jobs[0].label
    return frame(
        "security_curve", TITLE, body, description=f"{TITLE}: {'; '.join(sentences)}.", subtitle=subtitle
    )


def _told(row: EvaluationResult, steps: Sequence[CurveBreakdown]) -> str:
    first, last = steps[0].metrics["curve_top1"].value or 0.0, steps[-1].metrics["curve_top1"].value or 0.0
    text = f"{percent(first)} at 0, {percent(last)} from {steps[-1].epsilon:.4g} on"
    if (median := row.metrics.get("median_distance")) is None:
        return text
    middle = "above all distances found" if median.value is None else f"{median.value:.4g}"
    return f"median {middle}, {text}"


def _points(line: str, steps: Sequence[CurveBreakdown]) -> Values:
    points: Values = []
    for place, step in enumerate(steps):
        metric = step.metrics["curve_top1"]
        if metric.value is None:
            continue
        points.append(
            {
                "attack": line,
                "x": step.epsilon,
                "value": metric.value,
                "low": metric.value if metric.ci_low is None else metric.ci_low,
                "high": metric.value if metric.ci_high is None else metric.ci_high,
                "shown": percent(metric.value),
                "interval": interval_text(metric),
                "place": place,
            }
        )
    return points


def _panel(norm: str, points: Values) -> Spec:
    order = list(dict.fromkeys(point["attack"] for point in points))
    told = cycled("attack", order, title="Attack")
    x: Spec = {"field": "x", "type": "quantitative", "title": f"radius ({norm})", "axis": {"tickCount": 6}}
    y: Spec = share_axis("value", "Accuracy")
    tooltip = [
        {"field": "attack", "type": "nominal"},
        {"field": "x", "type": "quantitative", "title": "radius", "format": ".4~g"},
        {"field": "shown", "type": "nominal", "title": "accuracy"},
        {"field": "interval", "type": "nominal", "title": "95 % interval"},
    ]
    ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
    encoding: Spec = {"x": x, "y": y, "color": told["color"], "order": {"field": "place"}, "tooltip": tooltip}
    band: Spec = {
        "mark": {"type": "area", "opacity": 0.16, "line": False, "interpolate": "step-after"},
        "encoding": {"x": x, **ends, "color": told["color"]},
    }
    # Invisible points carry the tooltips.
    hover: Spec = {
        "mark": {"type": "point", "opacity": 0, "size": 60},
        "encoding": {"x": x, "y": y, "color": told["color"], "tooltip": tooltip},
    }
    # The last step of each line has a mark, which tells the lines of the legend apart without their colour.
    ends_of = {point["attack"]: point for point in points}
    marks: Spec = {
        "data": {"values": list(ends_of.values())},
        "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
        "encoding": {"x": x, "y": y, "color": told["color"], "shape": told["shape"], "tooltip": tooltip},
    }
    return {
        "data": {"values": with_lines(points, "attack", order)},
        "layer": [band, *dashed_lines(len(order), encoding, interpolate="step-after"), hover, marks],
    }
