"""Python's help pages as a text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.workers.data import pydoc as module
from assay.workers.data.formats.text import Documents
from assay.workers.data.pydoc import pydoc, words_of


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], Documents]:
    """For tests/laws: the real pages, with one word of each part changed."""
    whole = dict(module._pages())
    if change == "word":
        for split in ("train", "test"):
            name = pydoc(None, "train" if split == "train" else "test").ids[0]
            whole[name] = ["changed", *whole[name][1:]]
    pages = whole.copy()

    def load(split: str) -> Documents:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_pages", lambda: pages)
            return pydoc(root, "train" if split == "train" else "test")

    return load


def test_words_are_runs_of_letters_or_of_one_mark() -> None:
    text = "The *lambda* form::\n  x = 1_000\n\n************\nDon't!"
    assert " ".join(words_of(text)) == ("the * lambda * form :: x = 1_000 <eos> ************ don ' t ! <eos>")


def test_there_is_enough_text_to_learn_from() -> None:
    train, test = pydoc(None, "train"), pydoc(None, "test")
    assert len(train) > 3 * len(test) > 20
    assert len(train.stream()) > 50_000
    assert len(test.stream()) > 10_000
    assert 1000 < len(train.vocabulary) < 5000
    assert (test.stream() == 1).mean() < 0.1
    assert len(pydoc(None, "train", least_count=5).vocabulary) < len(train.vocabulary)
