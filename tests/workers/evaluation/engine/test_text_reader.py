"""What a text classifier reads of sentences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.workers.data.formats.vocabulary import Vocabulary
from assay.workers.evaluation.engine.text_reader import Reader, reading

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


def reader(longest: int = 4) -> tuple[Reader, Counting]:
    model = Counting()
    return Reader(model, cut, longest=longest, device=torch.device("cpu"), autocast=False), model


def test_words_become_ids_with_padding_on_the_right() -> None:
    ask, model = reader()
    logits = ask(["a good film", "good", "  g00d   film "])
    assert model.seen[0].tolist() == [[2, 3, 4], [3, 0, 0], [1, 4, 0]]
    assert logits.tolist() == [[1, 1], [1, 0], [0, 1]]


def test_what_is_too_long_is_cut_and_nothing_is_one_unknown_word() -> None:
    ask, model = reader(longest=2)
    ask(["a a good film", ""])
    assert model.seen[0].tolist() == [[2, 2], [1, 0]]


def test_counts_what_is_read() -> None:
    assert reading(["a good film", "a b c"], encode, 2) == {
        "words": 6,
        "unknown_words": 2,
        "cut_texts": 2,
    }


def test_a_text_that_just_fits_is_not_cut() -> None:
    assert reading(["a good", "a good film"], encode, 2)["cut_texts"] == 1
