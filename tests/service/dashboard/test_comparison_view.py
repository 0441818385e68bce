"""A comparison as the rows of a page."""

from __future__ import annotations

import math

import pytest

from assay.service.dashboard.comparison_view import differing, p_text, verdict


@pytest.mark.parametrize(
    ("difference", "adjusted", "higher", "word"),
    [
        (0.1, 0.01, True, "better"),
        (0.1, 0.01, False, "worse"),
        (-0.1, 0.01, True, "worse"),
        (0.1, 0.05, True, ""),
        (0.0, 0.01, True, ""),
        (0.1, None, True, ""),
        (None, None, True, ""),
    ],
)
def test_only_significant_differences_have_a_verdict(
    difference: float | None, adjusted: float | None, higher: bool, word: str
) -> None:
    assert verdict(difference, adjusted, higher_is_better=higher) == word


def test_small_p_values_are_a_bound() -> None:
    assert (p_text(0.00009), p_text(0.0001), p_text(1.0)) == ("< 0.0001", "0.0001", "1")
    assert (p_text(0.04995), p_text(0.05), p_text(0.0512345)) == ("0.04995", "0.05", "0.0512")
    assert p_text(math.nextafter(0.05, 0)) != "0.05", "below the level"


def test_parameters_that_differ_have_a_text_for_each_job() -> None:
    first = {
        "model": {"name": "vit", "params": {"depth": 4, "heads": 2}, "weights": None},
        "seed": 0, "tags": ["a"],
        "data": {"name": "digits", "params": {}}, "execution": {"device": "cpu"},
    }  # fmt: skip
    other = {
        **first,
        "model": {"name": "vit", "params": {"depth": 6, "heads": 2}, "weights": {"job": "x"}},
        "tags": [],
    }
    assert differing([first, first]) == []
    assert differing([first, other]) == [("model.depth", ["4", "6"]), ("model.weights.job", ["-", "x"])]
    named = differing([first, {**first, "model": {"name": "symvit", "params": {}}}])
    assert named == [("model", ["vit", "symvit"]), ("model.depth", ["4", "-"]), ("model.heads", ["2", "-"])]
