"""The recipes against plain TextAttack 0.3.11, sentence by sentence.

`tests/vectors/textattack.json` is what it found; `tests/support/textattack_reference.py` wrote the file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.attacks.words.search.greedy import Answer
from assay.attacks.words.search.neighbours import Neighbours
from assay.attacks.words.search.recipe import Finding, Recipe
from assay.attacks.words.search.recipes import deepwordbug, homoglyph_swaps, pruthi, pwws, textfooler
from assay.attacks.words.search.vector_files import read_vectors
from assay.attacks.words.search.wordnet import synonyms
from tests.support.sentences import SENTENCES
from tests.support.word_models import probabilities
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

SEED = 3
VECTORS = json.loads((Path(__file__).resolve().parents[2] / "vectors" / "textattack.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    wordnet = write_wordnet(tmp_path_factory.mktemp("wordnet"))
    near = Neighbours(*read_vectors(write_vectors(tmp_path_factory.mktemp("vectors"))), 50)
    listed = (deepwordbug(), pruthi(), homoglyph_swaps(), pwws(synonyms(wordnet)), textfooler(near))
    return {recipe.name: recipe for recipe in listed}


def attack(recipe: Recipe, number: int) -> tuple[Finding, list[str]]:
    """Result of a recipe on a sentence, and its distinct queries."""
    sentence, label = SENTENCES[number]
    session, asked = recipe.attack(sentence, str(number), SEED), dict[str, None]()
    wanted = next(session)
    while True:
        asked |= dict.fromkeys(text.text for text in wanted)
        answers = []
        for text in wanted:
            shares = probabilities(text.text)
            answers.append(Answer(1 - shares[label], max(shares) != shares[label]))
        try:
            wanted = session.send(answers)
        except StopIteration as end:
            return end.value, list(asked)


def expected(name: str, number: int) -> dict[str, Any]:
    row: dict[str, Any] = VECTORS["recipes"][name][number]
    return row


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(VECTORS["recipes"]))
@pytest.mark.parametrize("number", range(len(SENTENCES)))
def test_asks_and_finds_what_textattack_does(recipes: dict[str, Recipe], name: str, number: int) -> None:
    finding, asked = attack(recipes[name], number)
    wanted = expected(name, number)
    assert asked == wanted["asked"]
    assert finding.queries == wanted["queries"]
    assert finding.text.text == wanted["text"]
    assert finding.skipped == (wanted["status"] == "skipped")
    assert finding.answer.broken == (wanted["status"] != "failed")


def test_the_sentences_show_every_way_to_end() -> None:
    for name, rows in VECTORS["recipes"].items():
        states = {row["status"] for row in rows}
        assert states == {"skipped", "failed", "succeeded"}, name
