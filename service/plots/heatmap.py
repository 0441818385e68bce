"""Accuracy by corruption and severity: a colour and a number for each cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from assay.service.contract.results import Breakdown, EvaluationResult, Metric
from assay.service.plots.marks import categories, category, heading, interval, quantity
from assay.service.plots.series import ACCURACIES, LabelledResults, interval_text, label_of_one, labelled_rows
from assay.service.plots.theme import HEIGHT, PERCENT, DataRows, Vega, frame, percent, shortened

TITLE = "Accuracy by corruption and severity"
NEEDS = "an evaluation with corruptions at stated severities"
MEAN = "mean"
CELL = {"width": 38, "height": 17}
LEAST = {"width": 200, "height": 140}  # of few cells, so that the plot fills its card
LOWER = 12  # Height of cells of many rows
LIGHT = 0.55  # above this accuracy cells are light, their numbers dark


def heatmap(jobs: Sequence[LabelledResults]) -> Vega | None:
    """A panel for each job and evaluation; None without corruptions at severities."""
    found = []
    for label, _, row in labelled_rows(jobs):
        cells = _cells(row)
        if any(cell["severity"] != MEAN for cell in cells):
            measured = f"{row.name} on {row.data.get('name')}"
            found.append((label if len(jobs) > 1 else measured, cells))
    if not found:
        return None
    several = len(found) > 1
    panels = [_panel(shortened(name) if several else None, cells) for name, cells in found]
    body: Vega = panels[0] if not several else {"concat": panels, "columns": 3}
    sentences = [_sentence(name, cells) for name, cells in found]
    description = f"{TITLE}: {'; '.join(sentences)}."
    return frame("heatmap", TITLE, body, description=description, subtitle=label_of_one(jobs))


def cell_marks(x: Vega, y: Vega, value: str, text: Vega, tooltip: list[Vega], *, title: str) -> list[Vega]:
    """Cells coloured by a proportion, with a number in readable contrast."""
    color = {
        "field": value,
        "type": "quantitative",
        "title": title,
        "scale": {"scheme": "cividis", "domain": [0, 1]},
        "legend": {"format": PERCENT, "gradientLength": 90, "tickCount": 3},
    }
    ink = {"condition": {"test": f"datum.{value} > {LIGHT}", "value": "#000000"}, "value": "#ffffff"}
    return [
        {"mark": {"type": "rect"}, "encoding": {"x": x, "y": y, "color": color, "tooltip": tooltip}},
        {"mark": {"type": "text"}, "encoding": {"x": x, "y": y, "text": text, "color": ink}},
    ]


def _cells(row: EvaluationResult) -> DataRows:
    return [
        _cell(part, metric)
        for part in row.breakdown
        if isinstance(part, Breakdown) and part.corruption is not None
        if (metric := _accuracy(part)) is not None
    ]


def _accuracy(part: Breakdown) -> Metric | None:
    found = [part.metrics[name] for name in ACCURACIES if name in part.metrics]
    return found[0] if found and found[0].value is not None else None


def _cell(part: Breakdown, metric: Metric) -> dict[str, Any]:
    return {
        "corruption": shortened(part.corruption or ""),
        "severity": MEAN if part.severity is None else str(part.severity),
        "value": metric.value,
        "interval": interval_text(metric),
        "n": metric.n,
    }


def _panel(title: str | None, cells: DataRows) -> Vega:
    numbers = sorted({cell["severity"] for cell in cells} - {MEAN}, key=int)
    means = [MEAN] if any(cell["severity"] == MEAN for cell in cells) else []
    x: Vega = {
        "field": "severity",
        "type": "ordinal",
        "sort": [*numbers, *means],
        "title": "Severity",
        "axis": {"labelAngle": 0, "domain": False, "ticks": False},
    }
    order = list(dict.fromkeys(cell["corruption"] for cell in cells))
    y = category("corruption", sort=order, title=None, axis={"domain": False, "ticks": False})
    text = quantity("value", format=".0%")
    tooltip = [
        *categories("corruption", "severity"),
        quantity("value", title="accuracy", format=".1%"),
        interval(),
        quantity("n"),
    ]
    panel: Vega = {
        "width": max(LEAST["width"], CELL["width"] * len(x["sort"])),
        "height": max(
            LEAST["height"],
            len(order) * (CELL["height"] if len(order) * CELL["height"] <= HEIGHT else LOWER),
        ),
        "data": {"values": cells},
        "layer": cell_marks(x, y, "value", text, tooltip, title="Accuracy"),
    }
    if title is not None:
        panel["title"] = heading(title)
    return panel


def _sentence(name: str, cells: DataRows) -> str:
    chosen = [cell for cell in cells if cell["severity"] != MEAN]
    worst = min(chosen, key=lambda cell: float(cell["value"]))
    best = max(chosen, key=lambda cell: float(cell["value"]))
    return (
        f"{name}: from {percent(worst['value'])} under {worst['corruption']} at severity"
        f" {worst['severity']}"
        f" to {percent(best['value'])} under {best['corruption']} at severity {best['severity']}"
    )
