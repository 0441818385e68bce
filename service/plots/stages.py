"""The accuracy left after each stage of an ensemble of attacks, as a falling staircase."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.service.contract.results import EvaluationResult, StageBreakdown
from assay.service.plots import theme
from assay.service.plots.marks import beside, categories, heading, interval, points, quantity
from assay.service.plots.series import (
    LabelledResults,
    attack_labels,
    interval_text,
    label_of_one,
    labelled_rows,
    setting_label,
    unattacked_accuracy,
)
from assay.service.plots.theme import DataRows, Vega

TITLE = "Accuracy left after each stage"
NEEDS = "an ensemble of attacks with more than one stage"
BEFORE = "no attack"
STEP = 58
ACCURACIES = ("top1", "expected_top1")  # a stage's first counts


def stages(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A staircase for each ensemble and job, a panel for each kind; None without stages."""
    found = [one for one in labelled_rows(jobs) if len(_staged(one[2])) > 1]
    if not found:
        return None
    several = len(jobs) > 1
    settings = attack_labels([row for _, _, row in found])
    panels: dict[str, list[DataRows]] = {}
    sentences = []
    for label, job, row in found:
        setting = setting_label(row, settings)
        line = _points(label, job, row)
        panels.setdefault(setting, []).append(line)
        steps = ", ".join(f"{point['stage']} {theme.percent(point['value'])}" for point in line)
        sentences.append(f"{setting}{f' of {label}' if several else ''}: {steps}")
    built = [_panel(setting, lines, several=several) for setting, lines in panels.items()]
    body, subtitle = beside(built), label_of_one(jobs)
    if len(built) == 1:
        del body["title"]
        subtitle = ": ".join(filter(None, [subtitle, *panels]))
    description = f"{TITLE}: {'; '.join(sentences)}."
    return theme.frame("stages", TITLE, body, description=description, subtitle=subtitle)


def _staged(row: EvaluationResult) -> list[StageBreakdown]:
    """The stages, where each continues the stages before; losses of segmentation are no steps."""
    parts = [part for part in row.breakdown if isinstance(part, StageBreakdown)]
    return [part for part in parts if any(name in part.metrics for name in ACCURACIES)]


def _points(label: str, job: LabelledResults, row: EvaluationResult) -> DataRows:
    start = unattacked_accuracy(job.results, row)
    points: DataRows = []
    if start is not None:
        points.append(_point(label, BEFORE, 0, start.value, interval_text(start), {}))
    for place, part in enumerate(_staged(row), 1):
        metric = next(part.metrics[name] for name in ACCURACIES if name in part.metrics)
        facts = {
            "entered": part.n,
            "broken": part.broken,
            "passes": part.forward_passes + part.backward_passes,
            "seconds": part.seconds,
        }
        points.append(  # A custom ensemble may name a stage twice.
            _point(label, f"{place}. {part.stage}", place, metric.value, interval_text(metric), facts)
        )
    return [point for point in points if point["value"] is not None]


def _point(
    label: str, stage: str, place: int, value: float | None, interval: str, facts: dict[str, Any]
) -> dict[str, Any]:
    return {"job": label, "stage": stage, "place": place, "value": value, "interval": interval, **facts}


def _panel(setting: str, lines: Sequence[DataRows], *, several: bool) -> Vega:
    steps = [point for line in lines for point in line]
    order = [p["stage"] for p in sorted({p["stage"]: p for p in steps}.values(), key=lambda p: p["place"])]
    names = list(dict.fromkeys(p["job"] for p in steps))
    told = theme.cycled("job", names, title="Job", legend=several)
    x: Vega = {
        "field": "stage",
        "type": "ordinal",
        "sort": order,
        "title": None,
        "axis": {"labelAngle": -25 if len(order) > 3 else 0, "grid": False},
        "scale": {"type": "point", "padding": 0.5},
    }
    y = theme.share_axis("value", "Accuracy")
    tooltip = [
        *categories("job", "stage"),
        quantity("value", title="accuracy", format=".1%"),
        interval(),
        *map(quantity, ("entered", "broken", "passes", "seconds")),
    ]
    layers: list[Vega] = [
        *theme.dashed_lines(len(names), {"x": x, "y": y, "color": told["color"]}, interpolate="step"),
        points(x, y, told, tooltip, size=36),
    ]
    if not several:
        area = {
            "mark": {"type": "area", "interpolate": "step", "opacity": 0.14},
            "encoding": {"x": x, "y": y, "color": told["color"]},
        }
        text = {
            "mark": {"type": "text", "dy": -9},
            "encoding": {"x": x, "y": y, "text": quantity("value", format=".1%")},
        }
        layers = [area, *layers, text]
    return {
        "title": heading(setting, offset=10),
        "width": max(160, STEP * len(order)),
        "data": {"values": theme.with_lines(steps, "job", names)},
        "layer": layers,
    }
