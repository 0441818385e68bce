"""Perplexity and its interval, from the losses of documents."""

from __future__ import annotations

import math
from typing import Any

import pytest

from assay.service.metrics.table import Context
from assay.service.metrics.tables.perplexity import Perplexity, perplexity_metrics
from assay.service.metrics.tables.word_swap import PERPLEXITIES, SHARES, WordSwap


def test_is_the_exponential_of_the_mean_over_all_words() -> None:
    metric = perplexity_metrics({"nll": [3.0, 10.0], "tokens": [2, 6]})["perplexity"]
    assert metric.value == pytest.approx(math.exp(13 / 8), rel=1e-15)
    assert metric.n == 2
    assert not metric.higher_is_better
    assert metric.ci_method == "t"
    # Influences of the documents on the mean loss: (3 - 2 * 13 / 8) / 4 and its negative; t of 1 degree.
    half = 12.7062 * 0.0625 / 1
    assert metric.ci_low == pytest.approx(math.exp(13 / 8 - half), rel=1e-4)
    assert metric.ci_high == pytest.approx(math.exp(13 / 8 + half), rel=1e-4)


def test_the_interval_narrows_with_the_number_of_documents_and_repeats_bit_for_bit() -> None:
    losses = [4.0 + (number * 7919 % 100) / 50 for number in range(400)]
    few = perplexity_metrics({"nll": losses[:25], "tokens": [1] * 25})["perplexity"]
    many = perplexity_metrics({"nll": losses, "tokens": [1] * 400})["perplexity"]
    assert many == perplexity_metrics({"nll": losses, "tokens": [1] * 400})["perplexity"]
    assert None not in (few.ci_low, few.ci_high, many.ci_low, many.value, many.ci_high)
    assert many.ci_low < many.value < many.ci_high  # type: ignore[operator]
    width = many.ci_high - many.ci_low  # type: ignore[operator]
    assert 0.15 < width / (few.ci_high - few.ci_low) < 0.4  # type: ignore[operator]


def test_the_interval_is_that_of_the_standard_error() -> None:
    """For documents of one word the logarithm of the perplexity is a mean."""
    n = 400
    metric = perplexity_metrics({"nll": [3.0, 5.0] * (n // 2), "tokens": [1] * n})["perplexity"]
    half = 1.96 / math.sqrt(n)
    assert metric.value == pytest.approx(math.exp(4))
    assert metric.ci_low is not None
    assert metric.ci_high is not None
    assert math.log(metric.ci_low) == pytest.approx(4 - half, abs=0.1 * half)
    assert math.log(metric.ci_high) == pytest.approx(4 + half, abs=0.1 * half)


@pytest.mark.parametrize(("losses", "tokens"), [([1.0, None], [1, 1]), ([], []), ([0.0], [0]), ([1e5], [1])])
def test_no_value_where_there_is_no_finite_one(losses: list[float | None], tokens: list[int]) -> None:
    metric = perplexity_metrics({"nll": losses, "tokens": tokens})["perplexity"]
    assert (metric.value, metric.ci_low, metric.ci_high) == (None, None, None)


LEAK: Any = {"leaks_future": {"words": 5, "compared": 30, "change": 0.25}}
ROWS: dict[str, Any] = {
    "id": ["a", "b"],
    "nll": [3.0, 10.0],
    "tokens": [2, 6],
    "unknown": [0, 1],
    "swapped": [1, 0],
    "kept_nll": [1.0, 10.0],
    "kept_nll_before": [1.0, 9.0],
    "unknown_before": [0, 0],
}


def test_a_model_that_sees_later_words_has_no_perplexity() -> None:
    before = Perplexity().summarise(ROWS, Context(evidence=[{}, {}]))
    assert (before.warnings, before.metrics) == ((), perplexity_metrics(ROWS))
    found = Perplexity().summarise(ROWS, Context(evidence=[LEAK, {}]))
    metric = found.metrics["perplexity"]
    assert (metric.value, metric.ci_low, metric.ci_high, metric.n) == (None, None, None, 2)
    (warning,) = found.warnings
    assert warning.code == "leaks_future"
    assert "perplexity is invalid" in warning.message
    measured = {"perplexity": before.metrics["perplexity"].value}
    assert warning.evidence == LEAK["leaks_future"] | {"metrics": ["perplexity"], "measured": measured}


@pytest.mark.parametrize("words", [0, 5])
def test_a_leak_by_construction_is_invalid_without_a_measured_one(words: int) -> None:
    leak: Any = {"leaks_future": {**LEAK["leaks_future"], "words": words, "by_construction": ["rpc_causal"]}}
    found = Perplexity().summarise(ROWS, Context(evidence=[leak]))
    assert found.metrics["perplexity"].value is None
    (warning,) = found.warnings
    assert "by construction: rpc_causal looks at all tokens of a window" in warning.message
    assert ("the losses of 5 of 30 words changed" in warning.message) == (words == 5)
    assert warning.evidence["by_construction"] == ["rpc_causal"]


def test_its_swapped_text_has_shares_of_words_only() -> None:
    found = WordSwap().summarise(ROWS, Context(evidence=[LEAK]))
    assert {name for name, metric in found.metrics.items() if metric.value is None} == {*PERPLEXITIES}
    assert all(found.metrics[name].value is not None for name in SHARES)
    assert found.warnings[0].evidence["metrics"] == [*PERPLEXITIES]
