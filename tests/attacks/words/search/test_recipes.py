"""What each recipe may change, by its paper; outcomes are held against TextAttack in `test_parity.py`."""

from __future__ import annotations

import numpy as np
import pytest

from assay.attacks.words.search.candidates import Moves
from assay.attacks.words.search.draws import Stream
from assay.attacks.words.search.neighbours import Neighbours
from assay.attacks.words.search.recipe import Recipe
from assay.attacks.words.search.recipes import deepwordbug, homoglyph_swaps, pruthi, pwws, textfooler
from assay.attacks.words.search.text import Text, within
from assay.attacks.words.search.word_change import WordChange


def texts(recipe: Recipe, sentence: str, *, changed: tuple[int, str] | None = None) -> list[str]:
    """Allowed texts with one more word changed, from the sentence or from it with a word changed before."""
    original = Text(sentence)
    moves = Moves(recipe.changes, recipe.rules, original, Stream(0, recipe.name, "id"))
    return [text.text for text in moves.of(original.replace(*changed) if changed else original)]


def test_deepwordbug_changes_a_character_by_each_of_its_four_ways() -> None:
    found = texts(deepwordbug(), "house")
    assert len(found) == 4
    assert {len(text) for text in found} == {4, 5, 6}
    swapped = [text for text in found if sorted(text) == sorted("house")]
    assert len(swapped) == 1


@pytest.mark.parametrize(("limit", "kept"), [(0, 0), (1, 3), (2, 4)])
def test_deepwordbug_keeps_within_its_edit_distance(limit: int, kept: int) -> None:
    """Swapped characters are two edits, the others one."""
    found = texts(deepwordbug(max_edit_distance=limit), "house")
    assert len(found) == kept
    assert all(within(text, "house", limit) for text in found)


def test_stop_words_stay() -> None:
    for recipe in (deepwordbug(), homoglyph_swaps(), pruthi()):
        assert texts(recipe, "they were with") == []


def test_pruthi_changes_long_words_inside() -> None:
    found = texts(pruthi(), "red house")
    words = [text.split() for text in found]
    assert all(first == "red" for first, _ in words), "a word of three characters stays"
    assert all(word[0] == "h" and word[-1] == "e" for _, word in words)
    # Two swaps inside of five characters, three deletions, and more.
    assert {"hosue", "huose", "huse", "hose", "houe"} <= {word for _, word in words}


@pytest.mark.parametrize(("max_words", "more"), [(1, False), (2, True)])
def test_pruthi_changes_few_words(max_words: int, more: bool) -> None:
    found = texts(pruthi(max_words=max_words), "brown house", changed=(0, "brwn"))
    assert bool(found) == more


def test_homoglyphs_change_one_character_of_a_word() -> None:
    found = texts(homoglyph_swaps(), "house")
    assert found
    for text in found:
        assert len(text) == 5
        assert sum(one != other for one, other in zip(text, "house", strict=True)) == 1
        assert not text.isascii()


def test_pwws_asks_its_synonyms_alone() -> None:
    synonyms = WordChange("synonyms", lambda word, draws: {"big": ["large", "great"]}.get(word, []))
    assert texts(pwws(synonyms), "big house") == ["great house", "large house"]


def test_textfooler_prepares_the_words_that_it_may_change() -> None:
    prepared: list[set[str]] = []

    class Watched(Neighbours):
        def prepare(self, words: object) -> None:
            prepared.append(set(words))  # type: ignore[call-overload]

    near = Watched(["good", "fine"], np.eye(2, dtype=np.float32), 1)
    recipe = textfooler(near)
    assert recipe.ahead is not None
    recipe.ahead(["The Good house", "good of it"])
    (words,) = prepared
    # Of all sentences, in small letters, without stop words as they are written.
    assert {"good", "house"} <= words
    assert not {"of", "it"} & words
