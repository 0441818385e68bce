"""Returns of a policy over episodes, with intervals, and the paired difference of two policies.

Intervals are bootstraps over episodes (`intervals.py`). Two policies that played the same episodes, by the
job's seed and the episode's id, are compared episode by episode.
"""

from __future__ import annotations

from typing import ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.estimates import bootstrapped, mean, resamples
from assay.service.metrics.intervals import paired_bootstrap
from assay.service.metrics.paired import TOLERANCE, Difference, Pair, PairedMetrics, Reported, Rows
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

# Metric to column.
MEANS = {
    "normalized_return": "normalized",
    "return": "return",
    "episode_length": "length",
    "action_change": "action_change",
}
UNDEFINED = "the policy gave a number that is not finite in some episode, which has no return"


class Returns(OutcomeTable):
    """A row is an episode; one in which the policy gave a number that is not finite has no return."""

    name = "returns"
    seeded: ClassVar[bool] = True
    columns = columns_of("id return normalized length forward backward", optional="action_change")
    units: ClassVar[Units] = {
        "normalized_return": "ratio",
        "return": "number",
        "episode_length": "count",
        "action_change": "number",
    }
    undefined: ClassVar[Reasons] = dict.fromkeys(("normalized_return", "return", "action_change"), UNDEFINED)

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Means over the episodes.

        Returns:
            `normalized_return`, 0 for random actions and 1 for the expert, and `return`: higher is better.
            `episode_length` in steps. With a perturbation `action_change`: how far it moved the action, the
            share of steps with another one where actions are discrete, else the mean distance in [0, 2].
        """
        del context
        return Summary({metric: _mean(rows, metric) for metric, name in MEANS.items() if name in rows})

    def paired(self, pair: Pair) -> PairedMetrics:
        """A bootstrap over the common episodes."""
        return PairedEpisodes(pair)


class PairedEpisodes:
    """Two policies in the same episodes."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def difference(self, metric: str, reported: Reported) -> Difference | None:
        """As `PairedMetrics`; of the means over the common episodes."""
        pair, name = self._pair, MEANS.get(metric)
        if name is None or not pair.ids:
            return None
        for rows, value in zip(pair.columns, reported, strict=True):
            found = _mean(rows, metric).value if name in rows else None
            if found is None or value is None or abs(found - value) > TOLERANCE * max(1.0, abs(value)):
                return None
        first, second = (pair.common(side, name) for side in (0, 1))
        count = resamples(len(pair.ids))
        return pair.bootstrap(paired_bootstrap(second, first, seed=pair.seed, resamples=count), count)


def _mean(rows: Rows, metric: str) -> Metric:
    """The mean of a metric's column; without a value where an episode has none."""
    values = rows[MEANS[metric]]
    higher = metric in ("normalized_return", "return")
    if None in values:
        return bootstrapped(None, None, len(values), higher_is_better=higher)
    return mean(values, metric, higher_is_better=higher)
