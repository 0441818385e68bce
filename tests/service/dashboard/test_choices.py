"""Choices of a page: refused with what is allowed, in few words."""

from __future__ import annotations

import pytest

from assay.service.contract.errors import InvalidSpec
from assay.service.dashboard.choices import check_choice, refused

HOSTILE = "<script>\x1b[31m\u202e" + "x" * 100_000


def refusal(field: str, given: str, allowed: list[str]) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as told:
        check_choice(field, given, allowed)
    return told.value


def test_nothing_and_what_is_allowed_pass() -> None:
    check_choice("model", "", ["vit"])
    check_choice("model", "", [])
    check_choice("model", "vit", {"vit": 1})


def test_another_value_is_refused_with_the_nearest() -> None:
    error = refusal("model", "vitt", ["vit", "symvit"])
    assert error.message == "the model 'vitt' is unknown; allowed: vit, symvit"
    (detail,) = error.details
    assert (detail.loc, detail.given, detail.allowed, detail.nearest) == (
        ["query", "model"],
        "vitt",
        ["vit", "symvit"],
        "vit",
    )


def test_upper_case_is_another_value() -> None:
    assert refusal("model", "VIT", ["vit"]).details[0].nearest == "vit"


def test_long_lists_are_counted_and_long_names_cut() -> None:
    error = refusal("model", "nothing", ["y" * 500, *(f"m{number:02}" for number in range(29))])
    listed = error.message.partition("allowed: ")[2]
    assert listed.startswith("y" * 50 + ", m00, ")
    assert listed.endswith("m18 and 10 more")
    exact = [f"m{number:02}" for number in range(20)]
    assert refusal("model", "nothing", exact).message.endswith("m19")


def test_a_hostile_value_is_short_and_printable_in_the_message() -> None:
    error = refusal("tag", HOSTILE, [])
    assert error.message.endswith("is unknown; allowed: none so far")
    assert len(error.message) < 200
    assert error.message.isprintable()


def test_words_for_what_is_allowed_have_no_nearest_name() -> None:
    detail = refused("page", "m", 7, "a page from 1 to 3").details[0]
    assert (detail.given, detail.allowed, detail.nearest) == (7, "a page from 1 to 3", None)
