"""Sequences of tokens: alphabets, cutting and padding, pairs, parts by hash."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from assay.workers.data.formats.sequences import (
    BYTES,
    Alphabet,
    ByteTexts,
    HashedDraws,
    TokenSequences,
    bytes_of,
    grey_ids,
    grey_levels,
    part_of,
)

ROWS = ([1, 2, 3], [2], [3, 1])


def made(pairs: bool = False) -> TokenSequences:
    rows = [torch.tensor(row) for row in ROWS]
    return TokenSequences(
        name="made",
        class_names=("no", "yes"),
        ids=["a", "b", "c"],
        labels=[0, 1, 1],
        vocabulary=Alphabet("xyz"),
        read=lambda index: (rows[index], rows[-1 - index]) if pairs else (rows[index],),
    )


def test_sequences_are_cut_and_padded_to_the_longest() -> None:
    data = made()
    assert (data.task, data.classes, data.channels, data.size, len(data)) == ("sequence", 2, 4, None, 3)
    assert data.tokens([0, 1], 10).tolist() == [[1, 2, 3], [2, 0, 0]]
    assert data.tokens([2, 1], 1).tolist() == [[3], [2]]
    assert data.tokens([], 3).shape == (0, 0)
    assert data.mean_tokens == 2


def test_pairs_have_one_length() -> None:
    assert made(pairs=True).tokens([0, 1], 10).tolist() == [[[1, 2, 3], [3, 1, 0]], [[2, 0, 0], [2, 0, 0]]]
    assert made(pairs=True).mean_tokens == 4


def test_what_is_cut_is_counted() -> None:
    assert [made().count_cut([0, 1, 2], length) for length in (3, 2, 1)] == [0, 1, 2]
    assert made(pairs=True).count_cut([0, 1, 2], 2) == 2


def test_impossible_requests_are_refused() -> None:
    for index in (-1, 3):
        with pytest.raises(IndexError, match=str(index)):
            made().tokens([index], 3)
    with pytest.raises(ValueError, match="got 0"):
        made().tokens([0], 0)


def test_an_alphabet_knows_its_symbols_only() -> None:
    alphabet = Alphabet("ab")
    assert alphabet.ids("ba").tolist() == [2, 1]
    assert "a" in alphabet
    assert "c" not in alphabet
    assert len(alphabet) == 3
    with pytest.raises(ValueError, match="'c' is no symbol of the data; allowed: a, b"):
        alphabet.ids("abc")
    with pytest.raises(ValueError, match="a symbol occurs twice"):
        Alphabet("aba")
    assert alphabet.sha256 != Alphabet("ba").sha256


def test_bytes_and_grey_levels_have_the_released_ids() -> None:
    assert bytes_of("aé").tolist() == [98, 0xC3 + 1, 0xA9 + 1]
    assert len(BYTES) == 257
    assert BYTES.words[98] == f"byte {ord('a')}"
    levels = np.array([[0, 255], [7, 0]], dtype=np.uint8)
    assert grey_ids(levels, black="padding").tolist() == [0, 255, 7, 0]
    assert grey_ids(levels, black="token").tolist() == [1, 256, 8, 1]
    for black, name in (("token", "level 7"), ("padding", "level 7")):
        alphabet = grey_levels(black)  # type: ignore[arg-type]
        assert alphabet.words[grey_ids(levels, black=black)[2]] == name  # type: ignore[arg-type]
        assert len(alphabet) == grey_ids(levels, black=black).max() + 1  # type: ignore[arg-type]


def test_surrogates_that_an_attack_may_leave_are_read() -> None:
    data = ByteTexts(name="x", class_names=("a", "b"), ids=["1"], sentences=["\ud800"], labels=[0])
    assert data.tokens([0], 9).shape == (1, 3)


def test_parts_are_a_half_and_two_quarters() -> None:
    counts = Counter(part_of(str(number)) for number in range(4000))
    assert abs(counts["train"] - 2000) < 150
    assert abs(counts["validation"] - 1000) < 120
    assert counts.total() == 4000


def test_draws_are_even_and_keyed() -> None:
    draws = HashedDraws("a")
    found = [draws.below(5) for _ in range(5000)]
    assert min(Counter(found).values()) > 850
    assert max(Counter(found).values()) < 1150
    again, other = HashedDraws("a"), HashedDraws("b")
    assert [again.below(5) for _ in range(5000)] == found
    assert [other.below(5) for _ in range(5000)] != found
