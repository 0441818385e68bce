"""Returns of a policy over episodes, with intervals, and the paired difference of two policies.

Two policies that played the same episodes, by the job's seed and the episode's id, are compared episode by
episode.
"""

from __future__ import annotations

from typing import ClassVar

from assay.service.metrics.analyses.analysis_estimates import mean
from assay.service.metrics.paired import Pair, PairedMetrics, Rows
from assay.service.metrics.statistics.paired_estimates import Estimator, PairedEstimates, column_of
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["Returns"]

MEANS = {  # Metric to column.
    "normalized_return": "normalized",
    "return": "return",
    "episode_length": "length",
    "action_change": "action_change",
}
RETURNS = ("normalized_return", "return")
UNDEFINED = "the policy gave a number that is not finite in some episode, which has no return"


class Returns(OutcomeTable):
    """A row is an episode; it has no return if the policy gave a number that is not finite."""

    name = "returns"
    seeded: ClassVar[bool] = True
    columns = columns_of("id return normalized length forward backward", optional="action_change")
    units: ClassVar[Units] = {
        "normalized_return": "ratio",
        "return": "number",
        "episode_length": "count",
        "action_change": "number",
    }
    undefined: ClassVar[Reasons] = dict.fromkeys((*RETURNS, "action_change"), UNDEFINED)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Means over the episodes.

        `normalized_return`, 0 for random actions and 1 for the expert, and `return`: higher is better.
        `episode_length` in steps. With a perturbation `action_change`: how far it moved the action, the share
        of steps with another one where actions are discrete, else the mean distance in [0, 2].
        """
        del context
        return Summary(
            {
                metric: mean(rows[name], metric, higher_is_better=metric in RETURNS)
                for metric, name in MEANS.items()
                if name in rows
            }
        )

    def paired(self, pair: Pair) -> PairedMetrics:
        """Sign flips of the episodes' differences."""
        return PairedEstimates(pair, {metric: Estimator(column_of(name)) for metric, name in MEANS.items()})
