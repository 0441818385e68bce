"""What a text classifier reads of sentences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.engine.text_reader import MAX_PADDING, Reader, passes, reading

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
