"""Verified robust accuracy: the share of examples that provably no perturbation in the ball can break.

A lower bound of the accuracy under any attack within the ball, from per-example outcomes of `verified`.
"""

from __future__ import annotations

from typing import ClassVar

from assay.service.metrics.answers import Answers, classified
from assay.service.metrics.paired import Pair, PairedMetrics, PairedShares, Rows
from assay.service.metrics.statistics.estimates import mean, proportion
from assay.service.metrics.statistics.paired_estimates import Estimator, FirstOf, PairedEstimates, ratio_of
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, columns_of, units_of

__all__ = ["Verified"]

METRIC, COLUMN = "verified_top1", "verified"  # by which a bracket knows verified examples


class Verified(OutcomeTable):
    """A row is an example: whether it is right, whether it is verified, and its smallest lower margin."""

    name = "verified"
    columns = columns_of("id label clean_correct verified lower_margin forward backward")
    units = units_of(proportion="verified_top1 clean_top1", number="lower_margin")
    undefined: ClassVar[Reasons] = {"lower_margin": "the lower bounds of some examples are not finite"}

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Shares of all examples.

        `verified_top1`: share that is right and verified. `clean_top1`: share that is right. `lower_margin`:
        mean over examples of the smallest lower bound of a margin.
        """
        del context
        n = len(rows["id"])
        margins = [margin for margin in rows["lower_margin"] if margin is not None]
        known = margins if len(margins) == n else []
        return Summary(
            {
                "verified_top1": proportion(sum(rows["verified"]), n, higher_is_better=True),
                "clean_top1": proportion(sum(rows["clean_correct"]), n, higher_is_better=True),
                "lower_margin": mean(known, "lower_margin"),
            }
        )

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's tests of the verified and of the clean accuracies; the margins are linearised."""
        shares = PairedShares(pair, {"verified_top1": "verified", "clean_top1": "clean_correct"})
        return FirstOf(shares, PairedEstimates(pair, {"lower_margin": Estimator(_margins, ratio_of)}))

    def unattacked(self, rows: Rows, context: Context) -> Answers:
        """Whether each example is right; the predictions are not in the rows."""
        del context
        return classified(rows, rows["clean_correct"], attacked=True, known=False)


def _margins(rows: Rows) -> list[tuple[float, int]] | None:
    margins = rows["lower_margin"]
    return None if None in margins else [(float(margin), 1) for margin in margins]
