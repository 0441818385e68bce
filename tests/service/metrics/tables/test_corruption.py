"""Accuracy under corruptions and mCE against the definition, written out."""

from __future__ import annotations

import random

import pytest

from assay.service.contract.corruption_cells import SEVERITIES, cells_of
from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.tables.corruption import corruption_metrics
from assay.workers.published.corruptions import ALEXNET_ERRORS

FIFTEEN = list(ALEXNET_ERRORS)


def outcomes(n: int, cells: int) -> list[str]:
    source = random.Random(0)
    return ["".join("01"[source.random() < 0.6] for _ in range(cells)) for _ in range(n)]


def test_mce_is_the_mean_of_errors_relative_to_alexnet() -> None:
    cells = cells_of({"corruptions": FIFTEEN, "severities": SEVERITIES})
    flags = outcomes(40, 75)
    metrics, breakdown = corruption_metrics(flags, cells, ALEXNET_ERRORS)
    relative = []
    for name in FIFTEEN:
        whole, *each = [row for row in breakdown if row.corruption == name]
        errors = [1 - row.metrics["top1"].value for row in each]  # type: ignore[operator]
        assert len(errors) == 5
        assert (whole.severity, whole.label) == (None, name)
        assert whole.metrics["top1"].value == pytest.approx(1 - sum(errors) / 5)
        relative.append(sum(errors) / 5 / ALEXNET_ERRORS[name])
        ce = whole.metrics["ce"]
        assert ce.value == pytest.approx(relative[-1])
        assert (ce.n, ce.higher_is_better) == (40, False)
        assert ce.ci_low < ce.value < ce.ci_high  # type: ignore[operator]
    mce = metrics["mce"]
    assert mce.value == pytest.approx(sum(relative) / 15)
    assert (mce.n, mce.ci_method, mce.higher_is_better) == (40, "wilson_effective", False)
    assert mce.ci_low < mce.value < mce.ci_high  # type: ignore[operator]
    accuracy = metrics["corrupted_top1"]
    assert accuracy.value == pytest.approx(sum(text.count("1") for text in flags) / (40 * 75))
    assert (accuracy.n, accuracy.higher_is_better) == (40, True)


def test_alexnet_has_an_mce_of_one() -> None:
    cells = cells_of({"corruptions": FIFTEEN, "severities": SEVERITIES})
    n = 1000
    wrong = {cell: round(ALEXNET_ERRORS[cell[0]] * n) for cell in cells}
    flags = ["".join("01"[row >= wrong[cell]] for cell in cells) for row in range(n)]
    metrics, _ = corruption_metrics(flags, cells, ALEXNET_ERRORS)
    assert metrics["mce"].value == pytest.approx(1, abs=1e-3)


def test_extra_corruptions_add_nothing_to_mce() -> None:
    cells = cells_of({"corruptions": [*FIFTEEN, "saturate"], "severities": SEVERITIES})
    flags = outcomes(30, 80)
    with_extra, _ = corruption_metrics(flags, cells, ALEXNET_ERRORS)
    without, _ = corruption_metrics([text[:75] for text in flags], cells[:75], ALEXNET_ERRORS)
    assert with_extra["mce"] == without["mce"]
    assert with_extra["corrupted_top1"] != without["corrupted_top1"]


@pytest.mark.parametrize(
    ("names", "severities", "imagenet"),
    [(FIFTEEN, SEVERITIES, False), (FIFTEEN[1:], SEVERITIES, True), (FIFTEEN, (1, 2, 3, 4), True)],
)
def test_where_alexnets_errors_do_not_belong_there_is_no_mce(
    names: list[str], severities: tuple[int, ...], imagenet: bool
) -> None:
    cells = cells_of({"corruptions": names, "severities": severities})
    metrics, breakdown = corruption_metrics(
        outcomes(5, len(cells)), cells, ALEXNET_ERRORS if imagenet else None
    )
    assert set(metrics) == {"corrupted_top1"}
    assert [row.label for row in breakdown if row.severity] == [f"{name}/{level}" for name, level in cells]
    assert all(set(row.metrics) == {"top1"} for row in breakdown)


def test_each_cell_has_its_accuracy_with_a_wilson_interval() -> None:
    metrics, breakdown = corruption_metrics(["10", "11", "00"], [("fog", 1), ("fog", 2)], None)
    assert [(row.corruption, row.severity) for row in breakdown] == [("fog", None), ("fog", 1), ("fog", 2)]
    over_all = breakdown[0].metrics["top1"]
    assert (over_all.value, over_all.n, over_all.ci_method) == (0.5, 3, "wilson_effective")
    first = breakdown[1].metrics["top1"]
    assert (first.value, first.n) == (2 / 3, 3)
    assert (first.ci_low, first.ci_high) == wilson(2, 3)
    assert metrics["corrupted_top1"].value == pytest.approx(0.5)


def test_without_an_error_an_interval_is_that_of_all_right() -> None:
    metrics, breakdown = corruption_metrics(["11"] * 60, [("fog", 1), ("fog", 2)], None)
    for metric in (metrics["corrupted_top1"], *(row.metrics["top1"] for row in breakdown)):
        assert (metric.value, metric.ci_low, metric.ci_high) == (1, *wilson(60, 60))
        assert metric.ci_method == "wilson"


def test_outcomes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="has 3 outcomes, 2 were to be measured"):
        corruption_metrics(["11", "101"], [("fog", 1), ("fog", 2)], None)
