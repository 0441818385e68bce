"""The outcome table of `confidence`."""

from __future__ import annotations

from typing import ClassVar

from assay.service.metrics.analyses.analysis_estimates import mean
from assay.service.metrics.paired import Rows
from assay.service.metrics.table import Context, OutcomeTable, Summary, Units, columns_of


class Confidence(OutcomeTable):
    """The probability of each prediction."""

    name = "confidence"
    columns = columns_of("id probability forward backward")
    units: ClassVar[Units] = {"confidence": "proportion"}

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """The mean with its score interval."""
        del context
        return Summary({"confidence": mean(rows["probability"], "confidence", bounded=True)})


TABLE = Confidence()
