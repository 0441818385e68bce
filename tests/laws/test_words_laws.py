"""Laws of every word change in the catalog; new ones are covered automatically."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import pytest

import assay.attacks.words
from assay.attacks.words.search.draws import Draws, Stream
from assay.attacks.words.search.text import spans
from assay.attacks.words.search.word_change import WordChange
from assay.service.catalog.catalog import load
from assay.workers.catalog import build

# Short and long, with signs inside, capitals, digits, letters of other alphabets, an emoji.
WORDS = (
    "a",
    "to",
    "the",
    "it's",
    "well-made",
    "Brilliant",
    "NASA",
    "1984",
    "naïve",
    "слово",
    "x" * 60,
    "so😀",
)
NAMES = [component.name for component in load().list("words")]
every = pytest.mark.parametrize("name", NAMES)


def make(name: str) -> WordChange:
    made: WordChange = build("words", name, {})()
    return made


def draws(word: str, number: int = 0) -> Draws:
    return Stream(0, "law", str(number)).of("change", WORDS.index(word))


def test_all_components_are_in_the_catalog() -> None:
    found = []
    for info in pkgutil.iter_modules(assay.attacks.words.__path__):
        found += getattr(importlib.import_module(f"assay.attacks.words.{info.name}"), "__all__", ())
    assert sorted(found) == sorted(NAMES)


@pytest.mark.sampled
@every
def test_a_candidate_is_one_other_word(name: str) -> None:
    change = make(name)
    for word in WORDS:
        for candidate in change.of(word, draws(word)):
            assert candidate != word
            assert len(candidate.split()) == 1
            assert len(spans(candidate)) == 1, candidate


@pytest.mark.sampled
@every
def test_the_same_draws_give_the_same_candidates(name: str) -> None:
    first, second = make(name), make(name)
    for word in reversed(WORDS):
        assert first.of(word, draws(word)) == second.of(word, draws(word))


@pytest.mark.sampled
@every
def test_states_whether_chance_decides(name: str) -> None:
    change = make(name)
    found = {tuple(tuple(change.of(word, draws(word, number))) for word in WORDS) for number in range(20)}
    assert (len(found) > 1) == change.chance


@pytest.mark.sampled
@every
def test_is_called_by_its_name_and_imports_no_library(name: str) -> None:
    assert make(name).name == name
    assert "textattack" not in sys.modules


@pytest.mark.sampled
@every
def test_changes_some_word_and_needs_no_characters(name: str) -> None:
    change = make(name)
    assert any(change.of(word, draws(word)) for word in WORDS)
    assert all(isinstance(candidate, str) and candidate for candidate in change.of("", Draws(0)))
