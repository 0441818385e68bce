"""Perplexities of the same documents, compared."""

from __future__ import annotations

import math

import pytest

from assay.service.metrics.perplexity import paired_difference, perplexity_of

LOSSES = [4.0 + (number * 7919 % 100) / 25 for number in range(60)]
FIRST = [(10 * loss, 10) for loss in LOSSES]


def test_a_model_that_is_always_a_little_better_is_found_out() -> None:
    second = [(loss - 0.5, tokens) for loss, tokens in FIRST]
    found = paired_difference(FIRST, second, seed="x")
    assert found is not None
    assert perplexity_of(FIRST) is not None
    expected = math.exp(math.fsum(LOSSES) / 60) * (math.exp(-0.05) - 1)
    assert found.difference == pytest.approx(expected, rel=1e-12)
    assert found.low < found.difference < found.high < 0
    assert found.p_value < 0.002
    assert found == paired_difference(FIRST[::-1], second[::-1], seed="x")


def test_equal_models_do_not_differ_and_no_word_has_no_perplexity() -> None:
    same = paired_difference(FIRST, FIRST, seed="x")
    assert same is not None
    assert (same.difference, same.low, same.high, same.p_value) == (0, 0, 0, 1)
    assert perplexity_of([(0.0, 0)]) is None
    assert paired_difference([(0.0, 0)], [(0.0, 0)], seed="x") is None
