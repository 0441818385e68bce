"""Instability of training relative to softmax attention, from `workers/evaluation/instability.py`.

`instability_ratio` is the mean over steps of tau_i / tau_i of softmax, as in table 3 of Chen et al.,
"Skyformer", NeurIPS 2021. Its interval is over the steps of a single run: it says nothing about other
initial weights.

Legend: n rows, the steps in order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

from assay.service.metrics.analyses.analysis_estimates import mean
from assay.service.metrics.analyses.svg import Panel, Series, draw
from assay.service.metrics.paired import Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["Instability"]

METRICS = ("instability_ratio", "instability", "softmax_instability")


class Instability(OutcomeTable):
    """Steps of training, with the score of the model and of the same model with softmax."""

    name = "instability"
    columns = columns_of("id score softmax_score forward backward")
    units: ClassVar[Units] = dict.fromkeys(METRICS, "number")
    undefined: ClassVar[Reasons] = dict.fromkeys(
        METRICS, "in some step the weights did not change, or the output is not finite"
    )

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The steps as one row, with a plot of both scores against the step.

        `instability_ratio`: the mean of the ratios to softmax, below 1 where the output changes less than
        with softmax; `instability` and `softmax_instability`: the means of the scores.
        """
        own, softmax = rows["score"], rows["softmax_score"]
        ratios = [
            None if score is None or not base else score / base
            for score, base in zip(own, softmax, strict=True)
        ]
        metrics = {
            name: mean(values, name) for name, values in zip(METRICS, (ratios, own, softmax), strict=True)
        }
        label = " and ".join(context.facts[0]["mechanisms"])
        return Summary(metrics, plot=_plot(label, ratios, own, softmax))


def _plot(
    label: str, ratios: Sequence[float | None], own: Sequence[float | None], softmax: Sequence[float | None]
) -> str:
    panels = [
        _panel("Ratio to softmax", "ratio", {label: ratios, "softmax": [1.0] * len(ratios)}),
        _panel("Score", "log10 of tau", {label: _logs(own), "softmax": _logs(softmax)}),
    ]
    return draw(panels)


def _panel(title: str, y_label: str, lines: dict[str, Sequence[Any]]) -> Panel:
    series = []
    for label, values in lines.items():
        points = tuple((float(step), value) for step, value in enumerate(values, 1) if value is not None)
        if points:
            series.append(Series(label, points, "line"))
    heights = [y for one in series for _, y in one.points] or [0.0, 1.0]
    room = (max(heights) - min(heights)) or 1.0
    steps = max(len(values) for values in lines.values())
    y = (min(heights) - 0.15 * room, max(heights) + 0.4 * room)
    x = (1.0, float(max(steps, 2)))
    return Panel(title, "step", y_label, tuple(series), x, y, legend="top", whole=True)


def _logs(values: Sequence[float | None]) -> list[float | None]:
    return [math.log10(value) if value else None for value in values]
