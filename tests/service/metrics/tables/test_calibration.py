"""Calibration errors and AURRA against plain loops over their formulas."""

from __future__ import annotations

import math
import random
from itertools import permutations
from typing import Any

import pytest
from scipy import stats

from assay.service.metrics.paired import Pair
from assay.service.metrics.statistics import estimates
from assay.service.metrics.table import Context
from assay.service.metrics.tables.calibration import Calibration, aurra, calibration_metrics


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "MAX_RESAMPLES", 200)


def answers(n: int, digits: int = 12, seed: int = 0) -> dict[str, list[float]]:
    """A model that is a little too sure."""
    draws = random.Random(seed)
    confidence = [round(draws.random(), digits) for _ in range(n)]
    return {"confidence": confidence, "correct": [draws.random() < 0.9 * one for one in confidence]}


def slow_ece(confidence: list[float], correct: list[float], bins: int) -> float:
    total = 0.0
    for number in range(1, bins + 1):
        inside = [
            (sure, right)
            for sure, right in zip(confidence, correct, strict=True)
            if (number - 1) / bins < sure <= number / bins or (number == 1 and sure == 0)
        ]
        if inside:
            gap = sum(sure for sure, _ in inside) - sum(right for _, right in inside)
            total += len(inside) / len(confidence) * abs(gap / len(inside))
    return total


def slow_rms(confidence: list[float], correct: list[float], size: int, last: bool) -> float:
    order = sorted(range(len(confidence)), key=lambda row: confidence[row])
    bins = [order[start : start + size] for start in range(0, len(order), size)]
    if len(bins) > 1 and len(bins[-1]) < size:
        bins[-2:] = [bins[-2] + bins[-1]]
    total = 0.0
    for rows in bins if last else bins[:-1]:
        gap = sum(confidence[row] for row in rows) / len(rows) - sum(correct[row] for row in rows) / len(rows)
        total += len(rows) / len(order) * gap**2
    return math.sqrt(total)


def slow_aurra(correct: list[float]) -> float:
    """Answers sorted from the surest one."""
    return sum(sum(correct[:k]) / k for k in range(1, len(correct) + 1)) / len(correct)


@pytest.mark.parametrize("n", [1, 99, 100, 201, 755])
@pytest.mark.parametrize("digits", [1, 12])
def test_equal_the_formulas(n: int, digits: int) -> None:
    columns = answers(n, digits, seed=n)
    found = calibration_metrics(columns, rms_bins="all")
    assert found["ece"].value == pytest.approx(slow_ece(**columns, bins=15), abs=1e-13)
    assert found["rms_calibration_error"].value == pytest.approx(slow_rms(**columns, size=100, last=True))
    if digits == 12:
        ordered = sorted(zip(columns["confidence"], columns["correct"], strict=True), reverse=True)
        assert found["aurra"].value == pytest.approx(slow_aurra([right for _, right in ordered]))
    assert {name: metric.higher_is_better for name, metric in found.items()} == {
        "ece": False,
        "rms_calibration_error": False,
        "aurra": True,
    }


def test_the_released_rms_error_leaves_out_the_surest() -> None:
    columns = answers(350)
    found = calibration_metrics(columns)["rms_calibration_error"]
    assert found.value == pytest.approx(slow_rms(**columns, size=100, last=False))
    alone = calibration_metrics(answers(199))
    assert alone["rms_calibration_error"].value is None
    assert alone["ece"].value is not None
    smaller = calibration_metrics(columns, rms_bin_size=25, rms_bins="all")["rms_calibration_error"]
    assert smaller.value == pytest.approx(slow_rms(**columns, size=25, last=True))


def test_answers_of_one_confidence_share_an_aurra() -> None:
    columns = {"confidence": [0.9, 0.5, 0.5, 0.5, 0.2], "correct": [1, 1, 0, 0, 1]}
    orders = [[1, *order, 1] for order in permutations([1, 0, 0])]
    expected = sum(map(slow_aurra, orders)) / len(orders)
    assert calibration_metrics(columns)["aurra"].value == pytest.approx(expected)


def test_ece_of_bin_edges_and_other_numbers_of_bins() -> None:
    # An edge belongs to the bin below it.
    columns = {"confidence": [0.5, 0.6], "correct": [1, 0]}
    assert calibration_metrics(columns, ece_bins=2)["ece"].value == pytest.approx(0.5 * 0.5 + 0.5 * 0.6)
    assert calibration_metrics(columns, ece_bins=1)["ece"].value == pytest.approx(abs(1.1 - 1) / 2)


def test_a_perfect_model_is_calibrated() -> None:
    found = calibration_metrics({"confidence": [1.0] * 300, "correct": [True] * 300})
    values = {name: (metric.value, metric.ci_low, metric.ci_high) for name, metric in found.items()}
    # No resample differs: an interval of zero width would be a claim.
    assert values["ece"] == values["rms_calibration_error"] == (0, None, None)
    assert values["aurra"] == (1, None, None)


def test_intervals_hold_the_value_and_shrink() -> None:
    widths = []
    for n in (300, 4800):
        metric = calibration_metrics(answers(n))["aurra"]
        assert metric.value is not None
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert metric.ci_low < metric.value < metric.ci_high
        widths.append(metric.ci_high - metric.ci_low)
    assert 0.15 < widths[1] / widths[0] < 0.4


def test_intervals_are_those_of_the_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one confidence all measures are linear in the accuracy."""
    monkeypatch.setattr(estimates, "MAX_RESAMPLES", 2000)
    n = 400
    found = calibration_metrics(
        {"confidence": [0.9] * n, "correct": [1, 0] * (n // 2)}, rms_bin_size=n, rms_bins="all"
    )
    half = 1.96 * math.sqrt(0.25 / n)
    for name, value in (("ece", 0.4), ("rms_calibration_error", 0.4), ("aurra", 0.5)):
        assert found[name].value == pytest.approx(value)
        assert found[name].ci_low == pytest.approx(value - half, abs=0.1 * half), name
        assert found[name].ci_high == pytest.approx(value + half, abs=0.1 * half), name


@pytest.mark.parametrize("n", [60, 1000])
def test_the_interval_of_a_calibrated_model_begins_at_0(n: int) -> None:
    draws = random.Random(n)
    confidence = [draws.random() for _ in range(n)]
    columns = {"confidence": confidence, "correct": [draws.random() < one for one in confidence]}
    for name, metric in calibration_metrics(columns, rms_bin_size=20).items():
        if name != "aurra":
            assert metric.ci_low == 0
            assert metric.value is not None
            assert metric.ci_high is not None
            assert metric.value <= metric.ci_high < 0.5


def test_the_interval_of_an_error_excludes_0_where_gaps_are_sure() -> None:
    """Half of the bins too sure, half of them not sure enough: gaps that the mean would hide."""
    draws = random.Random(5)
    confidence = [draws.random() for _ in range(1500)]
    right = [one + (0.2 if one < 0.5 else -0.2) for one in confidence]
    columns = {"confidence": confidence, "correct": [draws.random() < one for one in right]}
    for name in ("ece", "rms_calibration_error"):
        metric = calibration_metrics(columns)[name]
        assert metric.value is not None
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert 0.1 < metric.ci_low < metric.value < metric.ci_high < 0.26


def test_the_interval_of_an_error_holds_it_where_noise_is_all_there_is() -> None:
    draws = random.Random(3)
    confidence = [draws.random() for _ in range(3000)]
    columns = {"confidence": confidence, "correct": [draws.random() < one for one in confidence]}
    for name in ("ece", "rms_calibration_error"):
        metric = calibration_metrics(columns)[name]
        assert metric.value is not None
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert 0 <= metric.ci_low < metric.value < metric.ci_high < 0.1


def test_resamples_without_ties_take_the_short_way_to_the_same_number() -> None:
    columns = answers(120)
    ordered = sorted(zip(columns["confidence"], columns["correct"], strict=True))
    twice = [row for row in ordered for _ in range(2)]
    both = ([row[0] for row in twice], [int(row[1]) for row in twice])
    assert aurra(both, tied=False) == pytest.approx(aurra(both, tied=True))


def test_the_difference_of_ece_has_the_variance_of_all_examples_but_one() -> None:
    n = 40
    ids = [f"{place:03d}" for place in range(n)]
    sides = [{"id": ids, **answers(n, seed=seed)} for seed in (1, 2)]

    def difference(rows: list[int]) -> float:
        first, second = (
            slow_ece([side["confidence"][row] for row in rows], [side["correct"][row] for row in rows], 15)
            for side in sides
        )
        return second - first

    values = tuple(calibration_metrics(side)["ece"].value for side in sides)
    found = Calibration().paired(Pair("x", *sides)).difference("ece", values)  # type: ignore[arg-type]
    assert found is not None
    assert found.test is not None
    without = [difference([row for row in range(n) if row != out]) for out in range(n)]
    mean = math.fsum(without) / n
    error = math.sqrt((n - 1) / n * math.fsum((one - mean) ** 2 for one in without))
    assert found.value == pytest.approx(difference(list(range(n))))
    assert found.high == pytest.approx(found.value + float(stats.t.ppf(0.975, n - 1)) * error)
    assert found.test.p_value == pytest.approx(2 * float(stats.t.sf(abs(found.value) / error, n - 1)))


def test_bins_of_equal_size_keep_their_edges_without_an_example() -> None:
    # 200 examples have one counted bin, 199 none.
    ids = [f"{place:03d}" for place in range(200)]
    sides = [{"id": ids, **answers(200, seed=seed)} for seed in (1, 2)]
    values = tuple(calibration_metrics(side)["rms_calibration_error"].value for side in sides)
    paired = Calibration().paired(Pair("x", *sides))
    found = paired.difference("rms_calibration_error", values)  # type: ignore[arg-type]
    assert found is not None
    assert found.method == "t"
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high < found.value + 0.2


def test_one_unknown_confidence_leaves_no_value() -> None:
    found = calibration_metrics({"confidence": [0.5, None], "correct": [1, 0]})
    assert {(metric.value, metric.ci_low, metric.n) for metric in found.values()} == {(None, None, 2)}


@pytest.mark.parametrize(
    ("confidence", "said"),
    [
        ([0.5, 0.9, 0.7], "all 3 examples are in the last bin, which the released code leaves out"),
        ([0.5, None, 0.7], "the logits of 1 of 3 examples are not finite"),
    ],
)
def test_the_reason_of_a_missing_value_is_the_actual_one(confidence: list[Any], said: str) -> None:
    rows = {
        **{name: [1, 1, 0] for name in ("correct", "correct5")},
        "id": ["a", "b", "c"],
        "confidence": confidence,
    }
    found = Calibration().summarise(rows, Context())
    (warning,) = found.warnings
    assert f"rms_calibration_error has no value: {said}" in warning.message
    missing = [name for name, metric in found.metrics.items() if metric.value is None]
    assert warning.evidence == {"metrics": missing}


def test_columns_must_fit() -> None:
    with pytest.raises(ValueError, match="got 1 confidences, 2 correct"):
        calibration_metrics({"confidence": [0.5], "correct": [1, 0]})
