"""What a text classifier reads of sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.workers.data.formats.sequences import TokenSequences
from assay.workers.data.formats.vocabulary import PAD, Vocabulary
from assay.workers.evaluation.clean import clean
from assay.workers.evaluation.engine.text import reader as text_reader
from assay.workers.evaluation.engine.text.reader import (
    BUSY,
    MAX_PADDING,
    SORTED_BATCHES,
    LikeLengths,
    Reader,
    passes,
    reading,
)
from assay.workers.evaluation.token_noise import token_noise
from assay.workers.evaluation.top1 import top1
from tests.support.shards import shard

VOCABULARY = Vocabulary(["<pad>", "<unk>", "a", "good", "film"])


def encode(text: str) -> Tensor:
    return VOCABULARY.ids(text.split())


def cut(texts: Sequence[str], length: int) -> list[Tensor]:
    return [encode(text)[:length] for text in texts]


class Counting(nn.Module):
    """Logits (B, 2): how often ids 3 and 4 occur."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Tensor] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen.append(tokens)
        return torch.stack([(tokens == word).sum(1) for word in (3, 4)], 1).float()


def reader(longest: int = 4, rows: int = 8) -> tuple[Reader, Counting]:
    model = Counting()
    return Reader(model, cut, longest=longest, rows=rows, device=torch.device("cpu"), autocast=False), model


def test_words_become_ids_with_padding_on_the_right() -> None:
    ask, model = reader()
    logits = ask(["a good film", "good", "  g00d   film "])
    assert model.seen[0].tolist() == [[3, 0, 0], [1, 4, 0], [2, 3, 4]]
    assert logits.tolist() == [[1, 1], [1, 0], [0, 1]]


def test_what_is_too_long_is_cut_and_nothing_is_one_unknown_word() -> None:
    ask, model = reader(longest=2)
    ask(["a a good film", ""])
    assert model.seen[0].tolist() == [[1, 0], [2, 2]]


def test_counts_what_is_read() -> None:
    assert reading(["a good film", "a b c"], encode, 2) == {
        "words": 6,
        "unknown_words": 2,
        "cut_texts": 2,
    }


def test_a_text_that_just_fits_is_not_cut() -> None:
    assert reading(["a good", "a good film"], encode, 2)["cut_texts"] == 1


def test_logits_are_in_the_order_of_the_texts_in_any_number_of_passes() -> None:
    texts = ["good " * (place % 3) + "film " * (place % 2) for place in range(13)]
    for rows in (1, 3, 13):
        ask, model = reader(longest=9, rows=rows)
        assert ask(texts).tolist() == [[place % 3, place % 2] for place in range(13)]
        assert max(len(seen) for seen in model.seen) == rows
        assert len(model.seen) == -(-13 // rows)


def test_a_pass_ends_where_padding_begins_once_it_is_large_enough() -> None:
    lengths = [9, 2, 9, 2, 2, 9]
    assert passes(lengths, rows=8, busy=0) == [[1, 3, 4], [0, 2, 5]]
    assert passes(lengths, rows=8, busy=7) == [[1, 3, 4, 0], [2, 5]]
    assert passes(lengths, rows=2, busy=0) == [[1, 3], [4], [0, 2], [5]]


def test_padding_of_many_lengths_is_under_a_twentieth() -> None:
    lengths = [5 + (7 * place) % 50 for place in range(2000)]
    found = passes(lengths, rows=64, busy=256)
    assert sorted(place for places in found for place in places) == list(range(2000))
    read = sum(max(lengths[place] for place in places) * len(places) for places in found)
    assert sum(lengths) > (1 - MAX_PADDING) * read


REAL = {"loss", "confidence"}  # columns
LENGTHS = [3 + (7 * row) % 48 for row in range(700)]
MADE = TokenSequences(
    name="made",
    class_names=("odd", "even"),
    ids=[f"text {row}" for row in range(len(LENGTHS))],
    labels=[row % 2 for row in range(len(LENGTHS))],
    vocabulary=VOCABULARY,
    read=lambda row: (1 + (torch.arange(LENGTHS[row]) + row) % 4,),
)


class Noting(nn.Module):
    """Logits (B, 2) of the tokens that are there, in float64; notes rows, tokens read and all tokens."""

    sequence_length = 64

    def __init__(self) -> None:
        super().__init__()
        self.tokens: list[tuple[int, int, int]] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.tokens.append((len(tokens), int((tokens != PAD).sum()), tokens.numel()))
        weights = torch.arange(1, tokens.shape[1] + 1, dtype=torch.float64)
        scores = ((tokens - 2) * (tokens != PAD) / weights).sum(1)
        return torch.stack([scores, -scores], 1)


def measured(evaluation: Any, batch_size: int, order: Sequence[int]) -> tuple[dict[str, Any], Noting]:
    model = Noting()
    outcomes = evaluation.measure(shard(model, MADE, order, image_size=64, batch_size=batch_size))
    return outcomes.columns(), model


@pytest.mark.parametrize("evaluation", [clean(), top1(), token_noise(rate=0.3)])
def test_padding_of_classified_sequences_is_under_a_twentieth_and_no_outcome_moves(evaluation: Any) -> None:
    alone, _ = measured(evaluation, 1, range(100))
    for batch_size in (16, 64):
        found, model = measured(evaluation, batch_size, range(len(LENGTHS)))
        assert found["id"] == MADE.ids
        assert {name: column[:100] for name, column in found.items() if name not in REAL} == {
            name: column for name, column in alone.items() if name not in REAL
        }
        for name in REAL & found.keys():
            assert found[name][:100] == pytest.approx(alone[name], rel=1e-12)
        rows, read, computed = map(sum, zip(*model.tokens, strict=True))
        assert (rows, read) == (len(LENGTHS), sum(LENGTHS))
        assert computed - read < MAX_PADDING * computed
        # A pass ends early only once it keeps the device busy, or where the sorted rows end.
        parts = -(-len(LENGTHS) // (SORTED_BATCHES * batch_size))
        small = [size for size in model.tokens if size[0] < batch_size and size[1] < BUSY["cpu"]]
        assert len(small) <= parts


@pytest.mark.parametrize("sides", [1, 2])
def test_batches_of_like_length_hold_each_sequence_once_as_the_data_have_it(
    sides: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_reader, "SORTED_BATCHES", 3)
    asked: list[list[int]] = []

    def tokens_of(rows: Sequence[int]) -> Tensor:
        asked.append(list(rows))
        (row,) = rows
        shape = (1, row % 5) if sides == 1 else (1, 2, row % 5)
        return torch.full(shape, row)  # of row 0 all is padding, of row 5 nothing is there

    alike, seen = LikeLengths(tokens_of, 4, torch.device("cpu")), []
    for rows in alike.batches(30):
        found = alike.tokens(rows.tolist())
        longest = max(1, *(row % 5 for row in rows.tolist()))
        assert found.shape == (len(rows), *((2,) if sides == 2 else ()), longest)
        for row, tokens in zip(rows.tolist(), found, strict=True):
            assert (tokens[..., : row % 5] == row).all()
            assert (tokens[..., row % 5 :] == PAD).all()
        assert len(rows) <= 4
        # A sequence is loaded when its part of the rows is sorted, not before.
        assert len(asked) <= 12 * (1 + max(rows.tolist()) // 12)
        seen += rows.tolist()
    assert sorted(seen) == list(range(30))
    assert asked == [[row] for row in range(30)]
