"""Draws of the binomial follow their law."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from assay.service.metrics.statistics.distributions import binomial_draw


@pytest.mark.parametrize(("n", "p"), [(5, 0.3), (12, 0.9), (3, 0.5), (1, 0.01)])
def test_binomial_draws_follow_their_law(n: int, p: float) -> None:
    rng = random.Random(7)
    draws = 20_000
    seen = Counter(binomial_draw(rng, n, p) for _ in range(draws))
    for k in range(n + 1):
        expected = math.comb(n, k) * p**k * (1 - p) ** (n - k)
        deviation = math.sqrt(expected * (1 - expected) / draws)
        assert abs(seen[k] / draws - expected) < 4.5 * deviation + 1e-4


def test_binomial_draws_of_large_n_stay_in_range() -> None:
    rng = random.Random(7)
    draws = [binomial_draw(rng, 50_000, 0.001) for _ in range(500)]
    assert min(draws) >= 0
    assert max(draws) <= 50_000
    assert sum(draws) / 500 == pytest.approx(50, abs=1.6)
