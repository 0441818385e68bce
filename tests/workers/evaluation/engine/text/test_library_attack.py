"""Recipes of a library, with a recipe in place of the package: what is asked, counted, drawn and judged."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.attacks.words.libraries.textattack import Attacked, LibraryRecipe, Probabilities
from assay.service.contract.extras import MissingExtra
from assay.workers.data.formats.dataset import MissingData
from assay.workers.evaluation.deepwordbug import deepwordbug
from assay.workers.evaluation.engine.text import library_attack as library_text_attack
from assay.workers.evaluation.engine.text.library_attack import LibraryTextAttack, Victim, attacked
from assay.workers.evaluation.pruthi import pruthi
from assay.workers.evaluation.pwws import pwws
from assay.workers.evaluation.textfooler import textfooler
from tests.support.word_vectors import write_vectors
from tests.support.wordnet_files import write_wordnet

GOOD = {0: [2.0, 0.0], 1: [0.0, 2.0]}


class Model:
    """Class 0, or 1 for texts with an x; notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, texts: Sequence[str]) -> Tensor:
        self.asked.append(list(texts))
        return torch.tensor([GOOD[int("x" in text)] for text in texts])


class Recipe(LibraryRecipe):
    """Asks about the text, then twice about a drawn letter after it."""

    def attack(self, model: Probabilities, text: str, label: int) -> Attacked:
        if model([text])[0].argmax() != label:
            return Attacked("skipped", text, 1)
        drawn = f"{text} {random.choice('abc')}{np.random.randint(10)}{torch.randint(10, ()).item()}"
        found = model([f"{text} x", drawn, drawn])
        assert torch.equal(found[1], found[2])
        return Attacked("succeeded" if found[0].argmax() != label else "failed", drawn, 4)


RECIPE = Recipe("drawing", "", "", lambda _: {}, {})


def test_a_text_is_put_to_the_model_once_and_counted_each_time() -> None:
    model = Model()
    row = attacked(RECIPE, Victim(model, 0), "one two", "a", 0)
    assert [len(texts) for texts in model.asked] == [1, 2]
    assert (row.queries, row.passes, row.words, row.changed) == (4, 3, 2, 1)
    assert (row.status, row.prediction, row.original) == ("succeeded", 0, "one two")
    assert row.loss == pytest.approx(math.log(1 + math.exp(-2)))
    assert row.clean_confidence == row.confidence == pytest.approx(1 / (1 + math.exp(-2)))


def test_what_the_model_reads_alike_is_one_text_to_it() -> None:
    model = Model()
    answers = Victim(model, 0, key=lambda text: text.replace("a", "b"))
    found = answers.probabilities(["a", "b", "c"])
    assert [len(texts) for texts in model.asked] == [2]
    assert torch.equal(found[0], found[1])


def test_a_wrong_text_is_skipped() -> None:
    row = attacked(RECIPE, Victim(Model(), 1), "one", "a", 0)
    assert (row.status, row.queries, row.passes, row.changed, row.prediction) == ("skipped", 1, 1, 0, 0)


def test_draws_are_keyed_by_seed_recipe_and_example() -> None:
    def text(seed: int, example: str, name: str = "drawing") -> str:
        recipe = Recipe(name, "", "", lambda _: {}, {})
        return attacked(recipe, Victim(Model(), 0), "one", example, seed).text

    first = text(0, "a")
    text(0, "b")
    assert text(0, "a") == first, "after any other draws"
    others = {
        text(seed, example, name) for seed in (0, 1) for example in "ab" for name in ("drawing", "other")
    }
    assert len(others) == 8


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_not_finite_are_wrong(value: float) -> None:
    def model(texts: Sequence[str]) -> Tensor:
        return torch.tensor([[0.0, value, 0.0]] * len(texts))

    answers = Victim(model, 1)
    assert answers.probabilities(["one"]).tolist() == [[0.5, 0.0, 0.5]]
    row = attacked(RECIPE, answers, "one", "a", 0)
    assert (row.status, row.prediction, row.nonfinite) == ("skipped", -1, True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_wordnet(tmp_path / "wordnet")
    write_vectors(tmp_path / "counter-fitted")
    return tmp_path


def test_without_the_package_the_plan_says_how_a_worker_gets_it(root: Path) -> None:
    for made in (deepwordbug, pruthi, pwws, textfooler):
        attack = made(backend="textattack")
        assert isinstance(attack, LibraryTextAttack)
        with pytest.raises(
            MissingExtra, match=r"backend 'textattack' needs .*assay-robustness\[textattack\]"
        ):
            attack.check(root)


def test_with_the_package_the_folder_is_read_as_for_the_native_recipe(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library_text_attack, "require_module", lambda what, module: None)
    for made, folder in ((pwws, "wordnet"), (textfooler, "counter-fitted")):
        attack = made(backend="textattack")
        attack.check(root)
        with pytest.raises(MissingData, match=r"docs/text-caches\.md"):
            attack.check(tmp_path / folder)
