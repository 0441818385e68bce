"""Loss and accuracy of a training, epoch by epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.service.plots import theme
from assay.service.plots.marks import APART, beside, category, points, quantity
from assay.service.plots.series import LabelledResults, label_of_one, labels_of
from assay.service.plots.theme import DataRows, Vega

TITLE = "Training"
NEEDS = "a training job that ended after plots were introduced"
LOSSES = {"loss": "training", "judged_loss": "validation", "evaluation_loss": "evaluation"}
SHARES = {
    "accuracy": "training",
    "judged_accuracy": "validation",
    "adversarial_accuracy": "adversarial training",
}
MAX_POINTS = 500  # of a line


def training(jobs: Sequence[LabelledResults]) -> Vega | None:
    """Losses beside accuracies, against the epoch; None without a training log."""
    labels = labels_of(jobs)
    losses, shares = (
        [
            point
            for label, job in zip(labels, jobs, strict=True)
            for point in _points(label, job.training, fields, several=len(jobs) > 1)
        ]
        for fields in (LOSSES, SHARES)
    )
    if not losses and not shares:
        return None
    panels = []
    if losses:
        panels.append(_panel(losses, quantity("value", title="Loss", scale={"zero": False})))
    if shares:
        panels.append(_panel(shares, theme.share_axis("value", "Accuracy")))
    last = [f"loss {losses[-1]['value']:.3g}"] if losses else []
    last += [f"{shares[-1]['series']} accuracy {theme.percent(shares[-1]['value'])}"] if shares else []
    epochs = max(point["epoch"] for point in [*losses, *shares])
    description = f"{TITLE}: {epochs} epochs; at the end {', '.join(last)}."
    body = beside(panels, resolve=APART)
    return theme.frame("training", TITLE, body, description=description, subtitle=label_of_one(jobs))


def _points(
    label: str, records: Sequence[Mapping[str, Any]], fields: Mapping[str, str], *, several: bool
) -> DataRows:
    step = max(1, math.ceil(len(records) / MAX_POINTS))  # A long log is thinned, except its last epoch.
    kept = [record for place, record in enumerate(records) if (len(records) - 1 - place) % step == 0]
    return [
        {"series": f"{label}: {name}" if several else name, "epoch": record["epoch"], "value": record[field]}
        for field, name in fields.items()
        for record in kept
        if isinstance(record.get(field), int | float) and math.isfinite(record[field])
    ]


def _panel(records: DataRows, y: Vega) -> Vega:
    names = list(dict.fromkeys(record["series"] for record in records))
    told = theme.cycled("series", names, title=None, legend=len(names) > 1)
    tooltip = [category("series"), quantity("epoch"), quantity("value", format=".4g")]
    x = quantity("epoch", title="Epoch", axis={"grid": False, "tickMinStep": 1, "format": "d"})
    few = len({record["epoch"] for record in records}) <= 30
    return {
        "data": {"values": theme.with_lines(records, "series", names)},
        "layer": [
            *theme.dashed_lines(len(names), {"x": x, "y": y, "color": told["color"]}),
            points(x, y, told, tooltip, size=22 if few else 4),
        ],
    }
