"""The order of a vocabulary, and its ids."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from assay.workers.data.formats.vocabulary import PAD, UNKNOWN, Vocabulary


def test_frequent_words_come_first_and_equally_frequent_ones_by_alphabet() -> None:
    vocabulary = Vocabulary.counted(Counter(["b", "a", "c", "a", "b", "<unk>", "d", "<unk>", "<unk>"]))
    assert vocabulary.words == ("<pad>", "<unk>", "a", "b", "c", "d")
    assert (vocabulary.id("a"), vocabulary.id("d")) == (2, 5)
    assert "d" in vocabulary
    assert "e" not in vocabulary


def test_words_that_are_not_known_become_the_unknown_word() -> None:
    vocabulary = Vocabulary.counted(Counter(["b", "a", "a"]), least=2)
    ids = vocabulary.ids(["a", "b", "<unk>", "zebra", "a"])
    assert ids.dtype == torch.int64
    assert ids.tolist() == [2, UNKNOWN, UNKNOWN, UNKNOWN, 2]
    assert vocabulary.ids([]).tolist() == []
    assert "zebra" not in vocabulary  # asking for its id did not add it
    assert len(Vocabulary.counted(Counter(["c", "c", "c", "b", "b", "a"]), most=4)) == 4
    assert PAD == 0


def test_the_hash_is_that_of_the_words_and_their_order() -> None:
    one = Vocabulary.counted({"a": 2, "b": 1})
    assert one.sha256 == Vocabulary.counted({"b": 5, "a": 9}).sha256
    assert one.sha256 != Vocabulary.counted({"a": 1, "b": 2}).sha256


@pytest.mark.parametrize("words", [[], ["a"], ["<unk>", "<pad>"], ["<pad>", "<unk>", "a", "a"]])
def test_what_is_no_vocabulary_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match="vocabulary"):
        Vocabulary(words)
    with pytest.raises(ValueError, match="<pad>"):
        Vocabulary.counted({"<pad>": 1})
