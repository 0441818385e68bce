"""Which numbers are better than all others beyond chance."""

from __future__ import annotations

from collections.abc import Sequence

from assay.service.contract.studies import Adjustment
from assay.service.metrics.comparison import ComparisonRow
from assay.service.metrics.multiple_tests import ADJUSTMENTS
from assay.service.reports.tidy import comparison_key

LEVEL = 0.05


def significantly_best(
    rows: Sequence[ComparisonRow], jobs: Sequence[str], adjust: Adjustment
) -> set[tuple[str, str]]:
    """Numbers that differ from those of all other jobs significantly, and are better.

    Args:
        rows: of all pairs of jobs; their p-values are adjusted here, over all of them together.
        jobs: ids; a number that one of them lacks has no best.
        adjust: how p-values are adjusted for the number of tests.

    Returns:
        Job and key (`TidyRow.key`) of each.
    """
    tests = [row.test.p_value for row in rows if row.test is not None]
    adjusted = iter(ADJUSTMENTS[adjust](tests))
    wins: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        p_value = 1.0 if row.test is None else next(adjusted)
        if p_value > LEVEL or not row.difference:
            continue
        first, second = (value.job for value in row.values)
        second_wins = (row.difference > 0) == row.higher_is_better
        winner, loser = (second, first) if second_wins else (first, second)
        key = comparison_key(row.evaluation, row.params, row.data, row.protocol, row.metric)
        wins.setdefault((winner, f" {key}"), set()).add(loser)
    return {place for place, beaten in wins.items() if len(beaten) == len(set(jobs)) - 1}
