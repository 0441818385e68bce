"""Associative recall: labels, different letters, parts that share nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.workers.data import recall as module
from assay.workers.data.formats.sequences import TokenSequences
from assay.workers.data.recall import ALPHABET, FACTS, label_of, recall


def law_case(root: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> Callable[[str], TokenSequences]:
    """For tests/laws: six sequences, with one token or one label changed."""
    drawn = module._sequences

    def changed(*key: Any) -> list[tuple[str, ...]]:
        first, *rest = drawn(*key)
        if change == "word":
            first = (*first[1::-1], *first[2:])
        return [first, *rest]

    monkeypatch.setattr(module, "_sequences", changed)
    if change == "label":
        monkeypatch.setattr(module, "label_of", lambda tokens: (label_of(tokens) + 1) % 10)
    return lambda split: recall(root, "train" if split == "train" else "test", train=6, evaluation=6)


def tokens_of(data: TokenSequences) -> list[list[str]]:
    ids = data.tokens(range(len(data)), 100)
    return [[ALPHABET.words[number] for number in row] for row in ids.tolist()]


@pytest.mark.parametrize("letters", [2, 6, 10])
def test_the_label_is_the_letters_digit(letters: int) -> None:
    data = recall(None, "train", letters=letters, train=200)
    assert (data.channels, data.classes) == (FACTS["channels"], FACTS["classes"])
    for row, label in zip(tokens_of(data), data.labels.tolist(), strict=True):
        *items, question = row
        assert len(items) == letters
        assert len({item[0] for item in items}) == letters
        assert question[1] == "?"
        assert [item[1] for item in items if item[0] == question[0]] == [str(label)]
    assert torch.bincount(data.labels, minlength=10).min() >= 8


def test_parts_share_no_sequence() -> None:
    parts = [
        recall(None, "train", letters=2, train=400),
        recall(None, "test", letters=2, evaluation=200),
        recall(None, "test", letters=2, evaluation=200, evaluated="validation"),
    ]
    found = [{tuple(row) for row in tokens_of(data)} for data in parts]
    assert [len(rows) for rows in found] == [400, 200, 200]
    assert not found[0] & found[1]
    assert not found[0] & found[2]
    assert not found[1] & found[2]
