"""Documents and labelled sentences in memory."""

from __future__ import annotations

from collections import Counter

import pytest

from assay.workers.data.formats.text import Documents, Sentences
from assay.workers.data.formats.vocabulary import Vocabulary

TEXTS = ["a b <eos>", "b c <eos> d <eos>"]
VOCABULARY = Vocabulary.counted(Counter(["b", "b", "a"]))  # b 2, a 3


def documents(texts: list[str] = TEXTS) -> Documents:
    return Documents(
        name="tiny",
        ids=[f"{number}" for number in range(len(texts))],
        read=lambda index: texts[index].split(" "),
        vocabulary=VOCABULARY,
    )


def sentences(labels: tuple[int, ...] = (0, 1)) -> Sentences:
    return Sentences(
        name="tiny",
        class_names=("no", "yes"),
        ids=["0", "1"],
        sentences=TEXTS,
        labels=labels,
        vocabulary=VOCABULARY,
    )


def test_the_stream_is_all_documents_one_after_the_other() -> None:
    text = documents()
    assert text.stream().tolist() == [3, 2, 1, 2, 1, 1, 1, 1]
    assert text.starts == [0, 3, 8]
    assert text.mean_tokens == 4
    assert text.words(1) == ["b", "c", "<eos>", "d", "<eos>"]
    assert documents(TEXTS[1:]).stream().tolist() == [2, 1, 1, 1, 1]
    with pytest.raises(IndexError, match="-1"):
        text.words(-1)


def test_sentences_are_padded_on_the_right_and_cut_at_the_length() -> None:
    data = sentences()
    assert data.tokens([0, 1], 10).tolist() == [[3, 2, 1, 0, 0], [2, 1, 1, 1, 1]]
    assert data.tokens([1, 0], 2).tolist() == [[2, 1], [3, 2]]
    assert data.tokens([], 4).shape == (0, 0)
    for index in (-1, 2):
        with pytest.raises(IndexError, match=str(index)):
            data.tokens([index], 4)
    with pytest.raises(ValueError, match="got 0"):
        data.tokens([0], 0)


def test_the_hashes_follow_words_labels_and_vocabulary() -> None:
    assert documents().content_sha256() != documents(["a b <eos>", "b e <eos> d <eos>"]).content_sha256()
    assert documents().content_sha256() != documents(TEXTS[::-1]).content_sha256()
    assert sentences().content_sha256() != sentences((0, 0)).content_sha256()
    other = sentences()
    other.vocabulary = Vocabulary.counted({"a": 2, "b": 1})
    assert other.content_sha256() != sentences().content_sha256()
