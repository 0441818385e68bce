"""Perplexities of the same documents, compared."""

from __future__ import annotations

import math
from typing import Any

import pytest

from assay.service.metrics.paired import Difference, Pair
from assay.service.metrics.tables.perplexity import Perplexity, paired_perplexity, perplexity_of

LOSSES = [4.0 + (number * 7919 % 100) / 25 for number in range(60)]
FIRST = [(10 * loss, 10 + number % 3) for number, loss in enumerate(LOSSES)]


def compared(second: list[tuple[float, int]], *, turned: bool = False) -> Difference | None:
    sides: list[dict[str, Any]] = []
    for documents in (FIRST, second):
        nll, tokens = zip(*documents, strict=True)
        columns = {"id": [f"{n:03d}" for n in range(60)], "nll": list(nll), "tokens": list(tokens)}
        sides.append({name: column[::-1] for name, column in columns.items()} if turned else columns)
    paired = Perplexity().paired(Pair("perplexity", *sides))
    return paired.difference("perplexity", (perplexity_of(FIRST), perplexity_of(second)))


def test_a_model_that_is_always_a_little_better_is_found_out() -> None:
    second = [(loss - 0.05 * tokens, tokens) for loss, tokens in FIRST]
    found = compared(second)
    assert found is not None
    expected = perplexity_of(FIRST)
    assert expected is not None
    assert found.value == pytest.approx(expected * (math.exp(-0.05) - 1), rel=1e-12)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high < 0
    assert found.test.p_value < 1e-6
    assert found == compared(second, turned=True)


def test_equal_models_do_not_differ_and_no_word_has_no_perplexity() -> None:
    same = compared(FIRST)
    assert same is not None
    assert (same.value, same.low, same.high, same.test.p_value) == (0, None, None, 1)
    assert perplexity_of([(0.0, 0)]) is None
    assert paired_perplexity([(0.0, 0)]) is None


def test_terms_are_the_derivatives_by_the_weights_of_documents() -> None:
    """The infinitesimal jackknife: value + n d(value) / d(weight of a document)."""
    found = paired_perplexity(FIRST)
    assert found is not None
    step = 1e-6
    for place in (0, 1, 17):
        weighted = [
            (loss * (1 + step * (at == place)), tokens * (1 + step * (at == place)))
            for at, (loss, tokens) in enumerate(FIRST)
        ]
        moved = perplexity_of(weighted)  # type: ignore[arg-type]
        assert moved is not None
        assert found.terms[place] == pytest.approx(found.value + 60 * (moved - found.value) / step, rel=1e-4)
