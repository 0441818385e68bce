"""Metrics of an attack on text, from per-example outcomes.

Morris et al. 2020, "TextAttack", section 4: an example that was wrong before the attack is skipped; it counts
as wrong in the accuracy under attack, and not at all in the success rate and the means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any, ClassVar

from assay.service.contract.results import Metric
from assay.service.metrics.answers import Answers, classified
from assay.service.metrics.paired import Pair, PairedMetrics, PairedShares, Rows
from assay.service.metrics.statistics.estimates import bounded_mean, mean, proportion
from assay.service.metrics.statistics.paired_estimates import (
    Estimator,
    FirstOf,
    PairedEstimates,
    column_of,
    ratio_of,
)
from assay.service.metrics.table import Context, OutcomeTable, Reasons, Summary, Units, columns_of

__all__ = ["TextAttack"]

SHARES = {"accuracy_under_attack": "correct", "accuracy": "clean_correct"}  # Metric to column of flags.
# Metric to column: its mean, for models that answer at random.
EXPECTED = {"expected_accuracy_under_attack": "expected", "expected_accuracy": "clean_expected"}


class TextAttack(OutcomeTable):
    """Answers to texts before and after an attack, and the cost of its search."""

    name = "text_attack"
    columns = columns_of(
        "id label prediction correct clean_correct status loss queries words changed forward backward",
        optional="expected clean_expected",
    )
    units: ClassVar[Units] = {
        **dict.fromkeys((*SHARES, *EXPECTED, "attack_success_rate", "words_changed"), "proportion"),
        "queries": "count",
    }
    undefined: ClassVar[Reasons] = {
        "attack_success_rate": "no example was right before the attack",
        "queries": "no example was right before the attack",
        "words_changed": "no example was broken",
    }

    def summarise(self, rows: Rows, context: Context) -> Summary:
        """Accuracies, the attack's success and its cost."""
        del context
        return Summary(expected_metrics(rows) if "expected" in rows else text_attack_metrics(rows))

    def paired(self, pair: Pair) -> PairedMetrics:
        """McNemar's test of the accuracies, linearised tests of means over some of the examples."""
        estimators = {
            "attack_success_rate": Estimator(_successes, ratio_of, largest=1.0),
            "queries": Estimator(_queries, ratio_of),
            "words_changed": Estimator(_changed, ratio_of, largest=1.0),
        }
        for metric, name in EXPECTED.items():
            estimators[metric] = Estimator(column_of(name), largest=1.0)
        return FirstOf(PairedShares(pair, SHARES), PairedEstimates(pair, estimators))

    def unattacked(self, rows: Rows, context: Context) -> Answers:
        """The answers to the texts as they are; skipped ones were wrong, and keep their prediction."""
        del context
        return classified(rows, rows["clean_correct"], attacked=True, known="expected" not in rows)


def text_attack_metrics(columns: Mapping[str, Sequence[Any]]) -> dict[str, Metric]:
    """Metrics of an attack.

    `accuracy_under_attack`: share of the n examples that are right under the attack; it comes first, as the
    number shown in tables. `accuracy`: share of them that were right before it. `attack_success_rate`: share
    of the examples right before that the attack broke. `queries`: mean number of texts queried by the search,
    the unchanged text included, over the examples right before. `words_changed`: mean share of changed words
    in the adversarial texts. The last three have no value without such examples.
    """
    status = columns["status"]
    attacked = [one != "skipped" for one in status]
    broken = [one == "succeeded" for one in status]
    shares = [share for share, _ in _changed(columns)]
    n = len(status)
    return {
        "accuracy_under_attack": proportion(status.count("failed"), n, higher_is_better=True),
        "accuracy": proportion(sum(attacked), n, higher_is_better=True),
        "attack_success_rate": proportion(sum(broken), sum(attacked), higher_is_better=False),
        "queries": mean(list(compress(columns["queries"], attacked)), "queries", lowest=0.0),
        "words_changed": bounded_mean(list(compress(shares, broken))),
    }


def expected_metrics(columns: Rows) -> dict[str, Metric]:
    """Metrics of an attack on a model that answers at random.

    Of `TextAttack.columns`, each (n,), n >= 1, `expected` and `clean_expected` are the shares of right
    answers in fresh draws of the model. `expected_accuracy_under_attack` and `expected_accuracy`: means of
    the two; `queries`: over all texts; `words_changed`: of the texts that were right in most draws, and no
    longer are.
    """
    shares = [share for share, _ in _changed(columns)]
    broken = [one == "succeeded" for one in columns["status"]]
    return {
        **{metric: bounded_mean(columns[name]) for metric, name in EXPECTED.items()},
        "queries": mean(columns["queries"], "queries", lowest=0.0),
        "words_changed": bounded_mean(list(compress(shares, broken))),
    }


def _successes(rows: Rows) -> list[tuple[int, int]]:
    return [(int(one == "succeeded"), int(one != "skipped")) for one in rows["status"]]


def _queries(rows: Rows) -> list[tuple[float, int]]:
    attacked = [int(one != "skipped" or "expected" in rows) for one in rows["status"]]
    return [(count * one, one) for count, one in zip(rows["queries"], attacked, strict=True)]


def _changed(rows: Rows) -> list[tuple[float, int]]:
    """Of each text its share of changed words, 0 where it was not broken, and whether it was."""
    broken = [int(one == "succeeded") for one in rows["status"]]
    words = zip(rows["changed"], rows["words"], broken, strict=True)
    return [(one * changed / max(count, 1), one) for changed, count, one in words]
