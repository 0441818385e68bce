"""Score intervals against the likelihood, against each other, and at their edges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
from scipy.optimize import minimize_scalar

from assay.service.metrics.statistics.estimates import clustered_share
from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.statistics.score_intervals import effective_wilson, paired_score
from assay.service.metrics.statistics.tango import tango

Z = 1.959963984540054


def score(more: int, fewer: int, n: int, difference: float) -> float:
    """Tango's statistic with the likelihood maximised by a numerical search."""
    rest = n - more - fewer

    def loss(share: float) -> float:
        """Minus the log-likelihood with P[fewer] = share, P[more] = share + difference."""
        parts = ((more, share + difference), (fewer, share), (rest, 1 - 2 * share - difference))
        return -math.fsum(count * math.log(max(p, 1e-300)) for count, p in parts if count)

    bounds = (max(0.0, -difference), (1 - difference) / 2)
    share = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-13}).x
    variance = n * (2 * share + difference * (1 - difference))
    return float((more - fewer - n * difference) / math.sqrt(variance))


@pytest.mark.parametrize(("more", "fewer", "n"), [(12, 2, 50), (1, 5, 30), (20, 14, 355), (3, 3, 20)])
def test_tangos_ends_solve_the_score_equation(more: int, fewer: int, n: int) -> None:
    low, high = tango(more, fewer, n)
    assert score(more, fewer, n, low) == pytest.approx(Z, abs=1e-4)
    assert score(more, fewer, n, high) == pytest.approx(-Z, abs=1e-4)
    assert tango(fewer, more, n) == (pytest.approx(-high), pytest.approx(-low))
    wider = tango(more, fewer, n, 0.99)
    assert wider[0] < low < (more - fewer) / n < high < wider[1]


def test_without_a_discordant_pair_tangos_interval_has_a_width() -> None:
    for n in (1, 2, 60, 10_000):
        end = Z**2 / (n + Z**2)
        assert tango(0, 0, n) == (pytest.approx(-end), pytest.approx(end))
    low, high = tango(30, 0, 30)
    assert high == 1.0
    assert low > 0.7


def test_effective_intervals_of_0_and_1_are_wilsons_and_tangos() -> None:
    for right in (0, 1, 37, 59, 60):
        assert effective_wilson([1.0] * right + [0.0] * (60 - right)) == pytest.approx(wilson(right, 60))
    for more, fewer in ((0, 0), (4, 1), (0, 7), (20, 20)):
        differences = [1.0] * more + [-1.0] * fewer + [0.0] * (60 - more - fewer)
        assert paired_score(differences) == pytest.approx(tango(more, fewer, 60))


def test_effective_intervals_are_near_the_normal_ones_of_many_examples() -> None:
    rng = random.Random(0)
    values = [rng.betavariate(4, 2) for _ in range(4000)]
    others = [min(1.0, value * rng.uniform(0.8, 1.15)) for value in values]
    differences = [b - a for a, b in zip(values, others, strict=True)]
    for ends, sample in ((effective_wilson(values), values), (paired_score(differences), differences)):
        mean = math.fsum(sample) / 4000
        half = Z * math.sqrt(math.fsum((one - mean) ** 2 for one in sample)) / 4000
        assert ends == (pytest.approx(mean - half, abs=half / 10), pytest.approx(mean + half, abs=half / 10))


def test_effective_intervals_scale_with_the_range_and_do_not_depend_on_the_order() -> None:
    values = [0.2, 0.4, 0.4, 1.0, 0.0, 0.8]
    low, high = effective_wilson(values)
    scaled = effective_wilson([3 * value for value in reversed(values)], highest=3.0)
    assert scaled == (pytest.approx(3 * low), pytest.approx(3 * high))
    differences = [0.2, -0.1, 0.0, 0.3, 0.0]
    below, above = paired_score(differences)
    assert paired_score(differences[::-1]) == (below, above)
    doubled = paired_score([2 * one for one in differences], largest=2.0)
    assert doubled == (pytest.approx(2 * below), pytest.approx(2 * above))


@pytest.mark.parametrize("n", [1, 2, 5, 60])
@pytest.mark.parametrize("value", [0.0, 0.4, 1.0])
def test_no_interval_has_zero_width(n: int, value: float) -> None:
    low, high = effective_wilson([value] * n)
    assert 0 <= low <= value <= high <= 1
    assert high - low > 0.5 / (n + 4)
    below, above = paired_score([value] * n)
    assert below < above
    assert below <= value <= above + 1e-12


@pytest.mark.parametrize(
    "call",
    [
        lambda: effective_wilson([]),
        lambda: effective_wilson([1.2]),
        lambda: effective_wilson([-0.1]),
        lambda: effective_wilson([0.5], confidence=1.0),
        lambda: tango(-1, 0, 5),
        lambda: tango(3, 3, 5),
        lambda: tango(0, 0, 0),
        lambda: paired_score([]),
        lambda: paired_score([1.5]),
        lambda: paired_score([math.nan]),
    ],
)
def test_refuses_impossible_input(call: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"got|at least one"):
        call()


def test_shares_of_words_count_documents() -> None:
    alone = clustered_share([3, 2, 4, 3], [30, 20, 40, 30], higher_is_better=False)
    assert (alone.ci_low, alone.ci_high, alone.ci_method) == (*wilson(12, 120), "wilson")
    # All or nothing in each document: nearly as many independent draws as documents, not as words.
    whole = clustered_share([10, 0] * 10, [10] * 20, higher_is_better=False)
    assert (whole.value, whole.n, whole.ci_method) == (0.5, 200, "wilson_effective")
    low, high = wilson(10, 20)
    assert whole.ci_low == pytest.approx(low, abs=0.01)
    assert whole.ci_high == pytest.approx(high, abs=0.01)
    assert clustered_share([0], [0], higher_is_better=False).value is None
