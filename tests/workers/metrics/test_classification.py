from __future__ import annotations

import pytest

from service.contract.statistics import wilson
from workers.metrics.classification import classification_metrics, proportion


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
