"""The average precision of anomalies is scikit-learn's, ties included."""

from __future__ import annotations

import random

import pytest
from sklearn.metrics import average_precision_score

from assay.service.metrics.paired import Pair
from assay.service.metrics.statistics.jackknife import jackknife_variance, logit_bounds, student_difference
from assay.service.metrics.tables.anomaly import Anomaly, anomaly_metrics


def scores(n: int, digits: int, seed: int = 0) -> tuple[list[bool], list[float]]:
    """Anomalies are a little less confident; with few digits there are many ties."""
    draws = random.Random(seed)
    anomaly = [draws.random() < 0.2 for _ in range(n)]
    return anomaly, [round(min(1.0, draws.random() * (0.9 if one else 1.0)), digits) for one in anomaly]


@pytest.mark.parametrize("digits", [0, 1, 2, 12])
@pytest.mark.parametrize("n", [10, 57, 1000])
def test_equals_scikit_learns(n: int, digits: int) -> None:
    anomaly, confidence = scores(n, digits, seed=n + digits)
    metric = anomaly_metrics({"anomaly": anomaly, "confidence": confidence})["aupr"]
    expected = average_precision_score(anomaly, [-value for value in confidence])
    assert metric.value == pytest.approx(expected, abs=1e-14)
    assert (metric.n, metric.higher_is_better) == (n, True)
    if sum(anomaly) < 2:
        assert (metric.ci_low, metric.ci_high, metric.ci_method) == (None, None, "too_few")
        return
    assert metric.ci_method == "t"
    assert metric.ci_low is not None
    assert metric.ci_high is not None
    assert 0 < metric.ci_low <= metric.ci_high <= 1


def aupr(anomaly: list[int], confidence: list[float]) -> float | None:
    return anomaly_metrics({"anomaly": anomaly, "confidence": confidence})["aupr"].value


def test_by_hand() -> None:
    # From the least confident: an anomaly, a normal one, an anomaly: 1/2 * 1 + 1/2 * 2/3.
    assert aupr([1, 0, 1], [0.1, 0.2, 0.3]) == pytest.approx(5 / 6)
    assert aupr([1, 1, 0], [0.1, 0.2, 0.3]) == 1
    assert aupr([1, 0, 0, 0], [0.5] * 4) == 0.25  # a score that tells nothing: the share of anomalies


def test_no_order_of_rows_matters() -> None:
    anomaly, confidence = scores(200, 1)
    rows = list(zip(anomaly, confidence, strict=True))
    random.Random(1).shuffle(rows)
    shuffled = {"anomaly": [row[0] for row in rows], "confidence": [row[1] for row in rows]}
    assert anomaly_metrics(shuffled) == anomaly_metrics({"anomaly": anomaly, "confidence": confidence})


def test_interval_covers_and_shrinks() -> None:
    """A quarter of the width for sixteen times as many."""
    widths = []
    for n in (400, 6400):
        anomaly, confidence = scores(n, 12)
        metric = anomaly_metrics({"anomaly": anomaly, "confidence": confidence})["aupr"]
        assert metric.ci_low is not None
        assert metric.ci_high is not None
        assert metric.value is not None
        assert metric.ci_low < metric.value < metric.ci_high
        widths.append(metric.ci_high - metric.ci_low)
    assert 0.15 < widths[1] / widths[0] < 0.4


@pytest.mark.parametrize("digits", [1, 12])
def test_the_interval_leaves_out_each_example(digits: int) -> None:
    anomaly, confidence = scores(40, digits, seed=4)
    values: dict[bool, list[float]] = {True: [], False: []}
    for place, one in enumerate(anomaly):
        rest = [[*column[:place], *column[place + 1 :]] for column in (anomaly, confidence)]
        values[one].append(average_precision_score(rest[0], [-value for value in rest[1]]))
    metric = anomaly_metrics({"anomaly": anomaly, "confidence": confidence})["aupr"]
    assert metric.value is not None
    low, high, _ = logit_bounds(metric.value, list(map(jackknife_variance, values.values())))
    assert (metric.ci_low, metric.ci_high) == (pytest.approx(low), pytest.approx(high))


def test_perfect_scores_have_no_interval() -> None:
    metric = anomaly_metrics({"anomaly": [1] * 5 + [0] * 15, "confidence": [0.1] * 5 + [0.9] * 15})["aupr"]
    assert (metric.value, metric.ci_low, metric.ci_high, metric.ci_method) == (1, None, None, "no_spread")


def test_the_interval_is_that_of_the_standard_error() -> None:
    """Anomalies of one confidence pass at once, with that share of the others which is less confident."""
    anomalies, others, below = 100, 800, 400
    confidence = [0.5] * anomalies + [0.1] * below + [0.9] * (others - below)
    metric = anomaly_metrics({"anomaly": [1] * anomalies + [0] * others, "confidence": confidence})["aupr"]
    deviation = (others * 0.25) ** 0.5
    low, high = (anomalies / (anomalies + below + side * 1.96 * deviation) for side in (1, -1))
    assert metric.value == anomalies / (anomalies + below)
    assert metric.ci_low == pytest.approx(low, abs=0.1 * (metric.value - low))
    assert metric.ci_high == pytest.approx(high, abs=0.1 * (high - metric.value))


@pytest.mark.parametrize(
    ("anomaly", "confidence"), [([1, 1], [0.1, 0.2]), ([0, 0], [0.1, 0.2]), ([1, 0], [None, 0.2])]
)
def test_what_has_no_value_has_none(anomaly: list[int], confidence: list[float | None]) -> None:
    metric = anomaly_metrics({"anomaly": anomaly, "confidence": confidence})["aupr"]
    assert (metric.value, metric.ci_low, metric.ci_high, metric.n) == (None, None, None, 2)


def test_columns_must_fit() -> None:
    with pytest.raises(ValueError, match="got 1 confidences, 2 anomalies"):
        anomaly_metrics({"anomaly": [1, 0], "confidence": [0.1]})
    with pytest.raises(ValueError, match="got 0 confidences"):
        anomaly_metrics({"anomaly": [1, 0]})


@pytest.mark.parametrize("digits", [1, 12])
def test_a_paired_difference_has_the_variances_of_both_samples(digits: int) -> None:
    n = 60
    ids = [f"{place:03d}" for place in range(n)]
    anomaly, first = scores(n, digits)
    second = scores(n, digits, seed=1)[1]
    sides = [{"id": ids, "anomaly": anomaly, "confidence": one} for one in (first, second)]

    def difference(rows: list[int]) -> float:
        chosen = [anomaly[row] for row in rows]
        values = [average_precision_score(chosen, [-side[row] for row in rows]) for side in (first, second)]
        return float(values[1] - values[0])

    values = tuple(anomaly_metrics(side)["aupr"].value for side in sides)
    found = Anomaly().paired(Pair("x", *sides)).difference("aupr", values)  # type: ignore[arg-type]
    variances = []
    for wanted in (True, False):
        outs = [row for row in range(n) if anomaly[row] == wanted]
        variances.append(jackknife_variance([difference([r for r in range(n) if r != out]) for out in outs]))
    expected = student_difference(difference(list(range(n))), variances, n)
    assert found is not None
    assert found.test is not None
    assert found.value == pytest.approx(expected.value)
    assert (found.low, found.high) == (
        pytest.approx(expected.bounds.low),
        pytest.approx(expected.bounds.high),
    )
    assert found.test.p_value == pytest.approx(expected.p_value)
