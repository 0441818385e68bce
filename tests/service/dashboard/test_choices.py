"""Choices of a page: refused with what is allowed, in few words."""

from __future__ import annotations

import re

import pytest

from assay.service.contract.errors import InvalidSpec
from assay.service.dashboard.choices import check_choices, refused
from assay.service.dashboard.formats import listed

HOSTILE = "<script>\x1b[31m\u202e" + "x" * 100_000


def refusal(field: str, given: str, allowed: list[str]) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as told:
        check_choices(**{field: (given, allowed)})
    return told.value


def test_nothing_and_what_is_allowed_pass() -> None:
    check_choices(model=("", ["vit"]))
    check_choices(model=("", []))
    check_choices(model=("vit", {"vit": 1}))


def test_another_value_is_refused_with_the_nearest() -> None:
    error = refusal("model", "vitt", ["vit", "symvit"])
    assert error.message == "query.model: unknown model"
    (detail,) = error.details
    assert (detail.loc, detail.given, detail.allowed, detail.nearest) == (
        ["query", "model"],
        "vitt",
        ["vit", "symvit"],
        "vit",
    )


def test_upper_case_is_another_value() -> None:
    assert refusal("model", "VIT", ["vit"]).details[0].nearest == "vit"


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(InvalidSpec) as told:
        check_choices(model=("a", ["vit"]), data=("digits", ["digits"]), kind=("b", ["train"]))
    assert [detail.loc[-1] for detail in told.value.details] == ["model", "kind"]


def test_long_lists_are_counted_and_names_stay_whole() -> None:
    threat = "recall(evaluated=test, evaluation=1000, letters=6, attacked=all)"
    text = listed([threat, *(f"m{number:03}" for number in range(200))])
    assert text.startswith(f"{threat}, m000, ")
    assert re.search(r"m0\d\d and \d+ more$", text)
    assert len(text) < 620
    assert listed(["y" * 500]) == f"{'y' * 199}…"


def test_a_hostile_value_is_short() -> None:
    (detail,) = refusal("tag", HOSTILE, []).details
    assert detail.allowed == "none so far"
    assert len(str(detail.given)) < 300


def test_words_for_what_is_allowed_have_no_nearest_name() -> None:
    detail = refused("page", "m", 7, "a page from 1 to 3").details[0]
    assert (detail.given, detail.allowed, detail.nearest) == (7, "a page from 1 to 3", None)
