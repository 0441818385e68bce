"""Positions of character changes: every position in order, or a drawn one; first and last ones stay."""

from __future__ import annotations

from typing import Any

import pytest

from assay.attacks.words.search.character_positions import at_places
from assay.attacks.words.search.draws import Draws


def marked(word: str, place: int, draws: Draws) -> list[str]:
    """The word with a mark at the position."""
    return [f"{word[:place]}*{word[place + 1 :]}"]


def candidates(word: str, *, draws: Draws | None = None, **options: Any) -> list[str]:
    usual = {"every": True, "keep_first": False, "keep_last": False}
    return at_places("marked", marked, **(usual | options)).of(word, draws or Draws("key"))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["*bcd", "a*cd", "ab*d", "abc*"]),
        ({"keep_first": True}, ["a*cd", "ab*d", "abc*"]),
        ({"keep_last": True}, ["*bcd", "a*cd", "ab*d"]),
        ({"keep_first": True, "keep_last": True}, ["a*cd", "ab*d"]),
        # Pairs begin where a second character follows that may change, too.
        ({"pairs": True}, ["*bcd", "a*cd", "ab*d"]),
        ({"pairs": True, "keep_first": True, "keep_last": True}, ["a*cd"]),
    ],
)
def test_every_position_in_order(options: dict[str, bool], expected: list[str]) -> None:
    assert candidates("abcd", **options) == expected


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("", {}),
        ("a", {}),
        ("ab", {"keep_first": True, "keep_last": True}),
        ("abc", {"pairs": True, "keep_first": True, "keep_last": True}),
    ],
)
@pytest.mark.parametrize("every", [True, False])
def test_words_without_a_position_have_no_candidates(
    word: str, options: dict[str, bool], every: bool
) -> None:
    assert candidates(word, every=every, **options) == []


def test_one_position_is_drawn_among_those_that_may_change() -> None:
    options = {"every": False, "keep_first": True, "keep_last": True}
    found = [candidates("abcde", draws=Draws(number), **options) for number in range(100)]
    assert {len(one) for one in found} == {1}
    assert {one[0] for one in found} == {"a*cde", "ab*de", "abc*e"}
    places = [Draws(number).below(3) for number in range(100)]
    assert [one[0].index("*") - 1 for one in found] == places


def test_all_candidates_of_a_position_are_kept() -> None:
    change = at_places(
        "two",
        lambda word, place, draws: [f"{word}{place}", f"{place}{word}"],
        every=True,
        keep_first=False,
        keep_last=True,
    )
    assert change.of("abc", Draws("key")) == ["abc0", "0abc", "abc1", "1abc"]


@pytest.mark.parametrize(
    ("every", "letters", "chance"), [(True, False, False), (True, True, True), (False, False, True)]
)
def test_it_says_whether_chance_decides(every: bool, letters: bool, chance: bool) -> None:
    change = at_places("marked", marked, every=every, letters=letters, keep_first=False, keep_last=False)
    assert change.name == "marked"
    assert change.chance == chance
