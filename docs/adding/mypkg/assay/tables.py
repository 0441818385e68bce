"""The outcome table of `confidence`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from assay.service.contract.results import Metric, PartBreakdown
from assay.service.metrics.analyses.analysis_estimates import mean
from assay.service.metrics.analyses.svg import Panel, draw, measured
from assay.service.metrics.paired import Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of


class Confidence(OutcomeTable):
    """The probability of each prediction, right or wrong."""

    name = "confidence"
    columns = columns_of("id probability forward backward", optional="correct")
    units: ClassVar[Units] = {"confidence": "proportion"}
    undefined: ClassVar[Reasons] = {"confidence": "a probability is not known"}

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The mean with its score interval, of all examples and of the right and the wrong answers."""
        del context
        parts = [
            PartBreakdown(label=name, keys={"right": right}, metrics={"confidence": _mean_of(rows, right)})
            for name, right in (("right", True), ("wrong", False))
            if right in rows.get("correct", ())
        ]
        return Summary({"confidence": _mean(rows["probability"])}, parts, plot=_plot(parts))


def _mean(values: Sequence[float | None]) -> Metric:
    return mean(values, "confidence", bounded=True)


def _mean_of(rows: Rows, right: bool) -> Metric:
    pairs = zip(rows["probability"], rows["correct"], strict=True)
    return _mean([probability for probability, correct in pairs if correct == right])


def _plot(parts: Sequence[PartBreakdown]) -> str:
    """A bar for the right answers, and a bar for the wrong ones."""
    bars = measured(((place, part.metrics["confidence"]) for place, part in enumerate(parts)), style="bars")
    names = {float(place): part.label for place, part in enumerate(parts)}
    panel = Panel("Confidence of answers", "", "mean probability", (bars,), (-1, 2), (0, 1), names=names)
    return draw([panel])


TABLE = Confidence()
