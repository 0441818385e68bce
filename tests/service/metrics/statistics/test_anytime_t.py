from __future__ import annotations

import math
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

from assay.service.metrics.statistics.anytime_t import FIRST, G, critical, p_value
from assay.service.metrics.statistics.student_t import quantile


def density(t: float, v: int, variance: float) -> float:
    """Density of t times a constant: t = (mu + z) / w, mu ~ N(0, variance), w^2 ~ chi^2(v) / v.

    Integrated over the mean and over w, as the mixture is defined, and not by the closed form.
    """

    def of_scale(w: float) -> float:
        # z = t w - mu has the density phi; the Jacobian is w, and w has the density w^(v - 1) e^(-v w^2 / 2).
        sd, centre = math.sqrt(variance), t * w

        def of_mean(mu: float) -> float:
            return math.exp(-((centre - mu) ** 2) / 2 - (mu * mu / (2 * variance)))

        if variance == 0:
            over_means = math.exp(-centre * centre / 2)
        else:
            peak, width = centre * variance / (1 + variance), sd / math.sqrt(1 + variance)
            over_means = integrate.quad(
                of_mean, peak - 12 * width, peak + 12 * width, epsabs=0, epsrel=1e-13, limit=200
            )[0] / (sd * math.sqrt(2 * math.pi))
        return over_means * w**v * math.exp(-v * w * w / 2)

    # The mass in w lies around sqrt(v / (v + t^2 / (1 + variance))).
    middle = math.sqrt((v + 1) / (v + t * t / (1 + variance)))
    points = [0.0, middle / 2, middle, 1.5 * middle, 2.5 * middle, 6 * middle + 2]
    return math.fsum(
        integrate.quad(of_scale, a, b, epsabs=0, epsrel=1e-12, limit=200)[0] for a, b in pairwise(points)
    )


@pytest.mark.parametrize("n", [2, 3, 5, 8, 20])
@pytest.mark.parametrize("t", [0.0, 0.7, 3.0, 9.0])
def test_p_is_the_mixture_integrated_numerically(n: int, t: float) -> None:
    factor = density(t, n - 1, n * G) / density(t, n - 1, 0.0)
    assert p_value(t, n) == pytest.approx(min(1.0, 1 / factor), rel=1e-10)


@pytest.mark.parametrize("n", [4, 5, 12, 30, 100])
@pytest.mark.parametrize("p", [1.0, 0.3, 0.05, 0.025, 0.011])
def test_the_critical_value_has_its_p(n: int, p: float) -> None:
    assert p_value(critical(p, n), n) == pytest.approx(p, rel=1e-12)
    assert p_value(-critical(p, n), n) == p_value(critical(p, n), n)
    assert critical(p, n) > quantile(p, n - 1.0)


def test_few_values_cannot_reject() -> None:
    assert [critical(0.05, n) == math.inf for n in (2, 3, FIRST)] == [True, True, False]
    assert p_value(math.inf, 3) == pytest.approx(1 / 16)
    assert p_value(1e9, 3) == pytest.approx(p_value(math.inf, 3))
    assert p_value(0.0, 7) == 1.0


@cache
def paths(n: int, draws: int = 4000) -> np.ndarray:
    """|t| of each draw after 2 to n values without an effect."""
    values = np.random.default_rng(41).standard_normal((draws, n))
    counts = np.arange(1, n + 1)
    means = values.cumsum(1) / counts
    squares = (values**2).cumsum(1) - counts * means**2
    return np.abs(means[:, 1:] * np.sqrt(counts[1:] * (counts[1:] - 1) / squares[:, 1:]))


def test_looking_after_every_value_keeps_the_level() -> None:
    counts = range(2, 31)
    anytime = np.array([critical(0.05, n) for n in counts])
    fixed = np.array([quantile(0.05, n - 1.0) for n in counts])
    assert (paths(30) > anytime).any(1).mean() < 0.05
    assert (paths(30) > fixed).any(1).mean() > 0.2


@pytest.mark.parametrize(
    ("p", "n", "said"),
    [(0.0, 5, "p must be in"), (1.1, 5, "p must be in"), (0.05, 1, "n must be at least 2")],
)
def test_arguments_out_of_range_are_refused(p: float, n: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        critical(p, n)
    if n < 2:
        with pytest.raises(ValueError, match=said):
            p_value(1.0, n)
