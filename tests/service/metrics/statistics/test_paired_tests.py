"""The sign flip against enumeration; McNemar's test is tested with the intervals."""

from __future__ import annotations

import itertools
import math
import random

import pytest

from assay.service.metrics.statistics.paired_tests import mcnemar, sign_flip


def enumerated(differences: list[int]) -> float:
    """The share of all patterns of signs whose sum is as large, in whole numbers."""
    sums = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    return sum(one >= abs(sum(differences)) for one in sums) / len(sums)


@pytest.mark.parametrize(
    "differences",
    [[1, 2, 3], [1, 2, -3], [3, -1, -2, 6], [1, 2, 3, 4, 5, -6], [7, 7, -14, 1], list(range(1, 13))],
)
def test_sums_that_differ_by_rounding_alone_are_the_same(differences: list[int]) -> None:
    """0.1 + 0.2 is not 0.3: tenths have the p of whole numbers."""
    expected = enumerated(differences)
    for scale in (1.0, 0.1, 1 / 3, 1e-9):
        assert sign_flip([scale * one for one in differences]) == expected
        assert sign_flip([-scale * one for one in reversed(differences)] + [0.0]) == expected


@pytest.mark.costly
@pytest.mark.parametrize("n", [13, 16])
def test_all_patterns_are_counted(n: int) -> None:
    rng = random.Random(n)
    for _ in range(10):
        sizes = [rng.choice([-1, 1]) * (1000 if place < 3 else rng.randrange(1, 100)) for place in range(n)]
        assert sign_flip([float(one) for one in sizes]) == enumerated(sizes)


@pytest.mark.parametrize("n", [12, 15, 24, 25, 30])
def test_no_p_is_below_the_share_of_one_pattern(n: int) -> None:
    """Where all differences have one sign, only this pattern and its negative are as large."""
    sizes = [1 + place / 100 for place in range(n)]
    assert sign_flip(sizes) == pytest.approx(2.0 ** (1 - n), rel=1e-12 if n <= 24 else 10)
    assert sign_flip(sizes) >= 2.0 ** (1 - n)


@pytest.mark.costly
def test_of_more_than_24_the_others_are_normal() -> None:
    rng = random.Random(0)
    for _ in range(5):
        sizes = [rng.choice([-1, 1]) * (1000 if place < 3 else rng.randrange(1, 100)) for place in range(26)]
        draws = [sum(rng.choice([-1, 1]) * one for one in sizes) for _ in range(20_000)]
        share = sum(abs(one) >= abs(sum(sizes)) for one in draws) / len(draws)
        assert sign_flip([float(one) for one in sizes]) == pytest.approx(share, abs=0.02)


def test_a_few_large_differences_beside_many_small_ones_are_few() -> None:
    """Three of a kind among 350 others: by the normal distribution p would be 0.08."""
    small = [1e-4 * (-1) ** place for place in range(350)]
    assert sign_flip([1.0] * 3 + small) == pytest.approx(0.125, abs=1e-9)
    # Within the tie, they are the same: McNemar's p.
    assert sign_flip([1.0, 0.99, 0.99, *small], tie=0.05) == pytest.approx(mcnemar(0, 3))
    assert sign_flip([1.0, 0.99, 0.99, *small]) < 0.2


def test_it_is_a_p_value_at_its_edges() -> None:
    assert sign_flip([]) == sign_flip([0.0] * 20) == 1.0
    assert sign_flip([1.0, -1.0] * 20) == pytest.approx(1.0)
    assert sign_flip([1.0] * 100) < 1e-20
    assert sign_flip([1.0] * 40 + [-1.0] * 20) == pytest.approx(math.erfc(20 / math.sqrt(120)), rel=0.05)
    with pytest.raises(ValueError, match="finite"):
        sign_flip([math.inf])
