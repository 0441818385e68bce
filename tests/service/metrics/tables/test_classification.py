from __future__ import annotations

import pytest

from assay.service.metrics.statistics.estimates import proportion
from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.table import Context
from assay.service.metrics.tables.classification import Attack, Classification, classification_metrics


def test_accuracy_and_top5_with_wilson_intervals() -> None:
    metrics = classification_metrics({"correct": [1, 0, 1, 1], "correct5": [True, True, True, False]})
    assert set(metrics) == {"top1", "top5"}
    top1 = metrics["top1"]
    assert (top1.value, top1.n, top1.ci_method, top1.higher_is_better) == (0.75, 4, "wilson", True)
    assert (top1.ci_low, top1.ci_high) == wilson(3, 4)
    assert metrics["top5"].value == 0.75


def test_success_rate_counts_only_what_was_right_before() -> None:
    columns = {"correct": [0, 0, 1, 1, 1]}
    metrics = classification_metrics(columns, initially_correct=[True, False, True, True, False])
    rate = metrics["attack_success_rate"]
    assert (rate.value, rate.n, rate.higher_is_better) == (1 / 3, 3, False)
    assert (rate.ci_low, rate.ci_high) == wilson(1, 3)
    assert metrics["top1"].value == 0.6
    assert "top5" not in metrics


def test_success_rate_of_a_model_that_is_always_wrong_is_unknown() -> None:
    metrics = classification_metrics({"correct": [0, 0]}, initially_correct=[False, False])
    rate = metrics["attack_success_rate"]
    assert (rate.value, rate.n, rate.ci_low, rate.ci_high) == (None, 0, None, None)


def test_norms_are_those_of_the_broken_examples() -> None:
    columns = {"correct": [0, 0, 0, 1], "linf": [0.1, 0.3, 0.9, 0.2], "l2": [1.0, 2.0, 9.0, 5.0]}
    metrics = classification_metrics(columns, initially_correct=[True, True, False, True])
    median = metrics["median_linf"]
    assert (median.value, median.n, median.ci_method) == (pytest.approx(0.2), 2, "too_few")
    assert (median.ci_low, median.ci_high) == (None, None)
    assert metrics["median_l2"].value == 1.5
    none = classification_metrics(columns | {"correct": [1] * 4}, initially_correct=[True] * 4)["median_l2"]
    assert (none.value, none.n, none.ci_low, none.ci_high) == (None, 0, None, None)


def test_rounded_accuracy_is_a_share() -> None:
    metrics = classification_metrics({"correct": [0, 0, 1, 1], "correct8": [0, 1, 1, 1]})
    assert metrics["top1_8bit"].value == 0.75
    assert (metrics["top1_8bit"].ci_low, metrics["top1_8bit"].ci_high) == wilson(3, 4)


def test_queries_are_counted_for_attacks_without_gradients_only() -> None:
    columns = {"correct": [0, 1, 0], "queries": [11, 31, 1], "backward": [0, 0, 0]}
    before = [True, True, False]
    queries = classification_metrics(columns, initially_correct=before)["queries"]
    assert (queries.value, queries.n, queries.ci_method) == (21, 2, "t")
    everything = classification_metrics(columns, initially_correct=before, attacked=[True] * 3)["queries"]
    assert (everything.value, everything.n) == (pytest.approx(43 / 3), 3)
    for unknown in (columns | {"backward": [1, 0, 0]}, {"correct": [0, 1, 0]}):
        assert "queries" not in classification_metrics(unknown, initially_correct=before)
    assert "queries" not in classification_metrics(columns, initially_correct=[False] * 3)
    assert "queries" not in classification_metrics(columns)


def test_order_of_examples_does_not_matter() -> None:
    correct, before = [1, 0, 0, 1, 0, 1], [1, 1, 0, 1, 1, 0]
    forwards = classification_metrics({"correct": correct}, initially_correct=[bool(b) for b in before])
    backwards = classification_metrics(
        {"correct": correct[::-1]}, initially_correct=[bool(b) for b in before[::-1]]
    )
    assert forwards == backwards


@pytest.mark.parametrize(
    ("columns", "before", "message"),
    [
        ({"label": [1]}, None, r"'correct'; given: \['label'\]"),
        ({"correct": [1, 0], "correct5": [1]}, None, "'correct5' has 1 entries"),
        ({"correct": [1, 0]}, [True], "'initially_correct' has 1 entries"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    columns: dict[str, list[int]], before: list[bool] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        classification_metrics(columns, initially_correct=before)


def test_no_examples_give_no_value() -> None:
    assert proportion(0, 0, higher_is_better=True).value is None


@pytest.mark.parametrize(("classes", "shown"), [(2, False), (5, False), (6, True), (None, True)])
def test_top_5_of_five_classes_or_fewer_is_not_reported(classes: int | None, shown: bool) -> None:
    columns = {
        "id": ["a", "b"],
        "correct": [1, 0],
        "correct5": [1, 1],
        "clean_correct": [1, 1],
        "backward": [1, 1],
    }
    for table in (Classification(), Attack()):
        metrics = table.summarise(columns, Context(classes=classes)).metrics
        assert ("top5" in metrics) is shown
        assert metrics["top1"].value == 0.5
