"""Candidate texts: which words are free, what rules allow, and each text once, by its letters."""

from __future__ import annotations

import pytest

from assay.attacks.words.search.candidates import Moves, Rules
from assay.attacks.words.search.draws import Draws, Stream
from assay.attacks.words.search.text import Text
from assay.attacks.words.search.word_change import WordChange

ORIGINAL = Text("the big Dog ran")


def fixed(name: str, *words: str) -> WordChange:
    """The same candidates for every word."""
    return WordChange(name, lambda word, draws: words)


def moves(*changes: WordChange, rules: Rules | None = None, seed: int = 0) -> Moves:
    return Moves(changes, rules or Rules(), ORIGINAL, Stream(seed, "attack", "id"))


def texts(found: list[Text]) -> list[str]:
    return [text.text for text in found]


@pytest.mark.parametrize(
    ("rules", "free"),
    [
        (Rules(), [0, 1, 2, 3]),
        (Rules(frozenset({"the", "dog"})), [1, 2, 3]),  # by their case
        (Rules(fewest_characters=4), []),
        (Rules(frozenset({"ran"}), fewest_characters=3), [0, 1, 2]),
    ],
)
def test_free_words(rules: Rules, free: list[int]) -> None:
    assert rules.free(ORIGINAL) == free


def test_changed_words_are_not_free() -> None:
    assert Rules().free(ORIGINAL.replace(1, "small")) == [0, 2, 3]
    assert Rules().free(ORIGINAL.replace(1, "very small")) == [0, 3, 4]
    assert Rules().free(Text("")) == []


def test_each_free_word_has_each_candidate_sorted_by_letters() -> None:
    rules = Rules(frozenset({"the", "ran"}))
    found = moves(fixed("first", "cat", "ant"), rules=rules).of(ORIGINAL)
    assert texts(found) == ["the ant Dog ran", "the big ant ran", "the big cat ran", "the cat Dog ran"]
    assert [sorted(text.modified) for text in found] == [[1], [2], [2], [1]]


def test_indices_restrict_the_words_to_those_that_are_free() -> None:
    rules = Rules(frozenset({"the"}))
    found = moves(fixed("first", "x"), rules=rules).of(ORIGINAL, [0, 3])
    assert texts(found) == ["the big Dog x"]
    assert moves(fixed("first", "x")).of(ORIGINAL, []) == []


def test_a_text_of_several_changes_stands_once() -> None:
    found = moves(fixed("first", "x", "x"), fixed("second", "x", "y")).of(ORIGINAL, [0])
    assert texts(found) == ["x big Dog ran", "y big Dog ran"]


def test_the_unchanged_text_is_no_candidate() -> None:
    assert texts(moves(fixed("first", "big", "x")).of(ORIGINAL, [1])) == ["the x Dog ran"]
    # Not the word itself, but a change that restores the text it began from.
    assert moves(WordChange("none", lambda word, draws: [])).of(ORIGINAL) == []


def test_every_rule_must_allow_a_text_beside_the_original() -> None:
    seen = []

    def few(text: Text, original: Text) -> bool:
        seen.append(original)
        return text.changed(original) <= 1

    def short(text: Text, original: Text) -> bool:
        return len(text.text) <= len(original.text)

    bounded = moves(fixed("first", "x", "longer"), rules=Rules(taken=(few, short)))
    assert texts(bounded.of(ORIGINAL, [1])) == ["the x Dog ran"]
    assert bounded.of(ORIGINAL.replace(1, "x"), [2]) == [], "a second word is one too many"
    assert all(original is ORIGINAL for original in seen)


def test_draws_are_keyed_by_change_and_word() -> None:
    def drawn(word: str, draws: Draws) -> list[str]:
        return [f"w{draws.below(10**6)}"]

    first = moves(WordChange("first", drawn, chance=True))
    whole = texts(first.of(ORIGINAL))
    assert sorted(text for index in range(4) for text in texts(first.of(ORIGINAL, [index]))) == whole
    other = moves(WordChange("second", drawn, chance=True))
    assert not set(texts(other.of(ORIGINAL))) & set(whole)
    assert not set(texts(moves(WordChange("first", drawn), seed=1).of(ORIGINAL))) & set(whole)
