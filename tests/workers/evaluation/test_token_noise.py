"""Random replacement of tokens: how many, by which, keyed by example; and word attacks on bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.token_model import TokenModel
from assay.workers.data.formats.sequences import BYTES, ByteTexts
from assay.workers.data.recall import recall
from assay.workers.evaluation.deepwordbug import deepwordbug
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.homoglyph_swaps import homoglyph_swaps
from assay.workers.evaluation.pruthi import pruthi
from assay.workers.evaluation.token_noise import replaced, token_noise

CPU = torch.device("cpu")


DRAWS = torch.rand(4000, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("shape", [(4000,), (2, 2000)])
def test_replaces_the_share_by_any_other_token(shape: tuple[int, ...]) -> None:
    tokens = torch.full(shape, 3)
    tokens[..., 1000:] = 0
    found = replaced(tokens, 0.3, 6, DRAWS)
    assert torch.equal(found == 0, tokens == 0)
    changed = found[(found != tokens)]
    count = int((tokens != 0).sum())
    assert abs(len(changed) / count - 0.3) < 4 * (0.21 / count) ** 0.5
    counts = torch.bincount(changed, minlength=6)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert (counts[[1, 2, 4, 5]] / len(changed) - 0.25).abs().max() < 0.06
    assert torch.equal(replaced(tokens, 0.0, 6, DRAWS), tokens)
    assert (replaced(tokens, 1.0, 6, DRAWS) != 3).all()


def test_padding_draws_nothing_and_a_higher_rate_replaces_more() -> None:
    tokens = torch.randint(1, 9, (50,), generator=torch.Generator().manual_seed(1))
    found = replaced(tokens, 0.4, 9, DRAWS)
    longer = replaced(torch.cat([tokens, torch.zeros(7, dtype=torch.int64)]), 0.4, 9, DRAWS)
    assert torch.equal(longer[:50], found)
    more = replaced(tokens, 0.8, 9, DRAWS)
    assert torch.equal(more[found != tokens], found[found != tokens])
    assert (more != tokens).sum() > (found != tokens).sum()


class Seen(nn.Module):
    """Logits (B, 10) that count digits; remembers what it read."""

    sequence_length = 20

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[int]] = []

    def forward(self, tokens: Tensor) -> Tensor:
        self.rows += tokens.tolist()
        return nn.functional.one_hot(tokens % 10, 10).sum(1).float()


def measured(batch_size: int, order: Sequence[int], **options: Any) -> tuple[list[list[int]], Any]:
    model = Seen()
    data = recall(None, "test", evaluation=20)
    shard = Shard(
        data=data, order=order, classifier=TokenModel(model), image_size=20, batch_size=batch_size, device=CPU
    )
    outcomes = token_noise(rate=0.5).measure(replace(shard, **options))
    return model.rows, outcomes


def test_outcomes_do_not_depend_on_batches_or_neighbours() -> None:
    rows, outcomes = measured(20, range(20))
    again, same = measured(3, range(20))
    assert rows == again
    assert outcomes.columns() == same.columns()
    alone, _ = measured(1, [7])
    assert alone == [rows[7]]
    other, _ = measured(20, range(20), seed=1)
    assert other != rows
    clean = recall(None, "test", evaluation=20).tokens(range(20), 20).tolist()
    assert (
        sum(a != b for x, y in zip(rows, clean, strict=True) for a, b in zip(x, y, strict=True)) / 140 > 0.35
    )
    assert other != clean


class LettersO(nn.Module):
    """Logits (B, 2) of bytes: the second grows with the number of the letter o."""

    sequence_length = 200

    def forward(self, tokens: Tensor) -> Tensor:
        count = (tokens == 1 + ord("o")).sum(1).float()
        return torch.stack([1.0 - count, count], 1)


TEXTS = ("ooooo oooooo, a ooooooo", "the film is bad")


@pytest.mark.parametrize("attack", [deepwordbug(), pruthi(max_words=5), homoglyph_swaps()])
def test_word_attacks_change_texts_of_bytes(attack: Any) -> None:
    data = ByteTexts(
        name="made", class_names=("none", "some"), ids=["a", "b"], sentences=TEXTS, labels=[1, 0]
    )
    assert data.vocabulary is BYTES
    shard = Shard(
        data=data,
        order=range(2),
        classifier=TokenModel(LettersO()),
        image_size=200,
        batch_size=8,
        device=CPU,
        save_adversarial=True,
    )
    found = attack.measure(shard)
    first, second = found.rows
    assert (first.status, second.status) != ("skipped", "skipped")
    assert first.original == TEXTS[0]
    assert first.text.count("o") < TEXTS[0].count("o")
    assert first.text.split(",")[0].count(" ") == TEXTS[0].split(",")[0].count(" ")
    assert first.changed >= 1
    assert first.words == 4
    assert found.evidence()["words"] == sum(len(text.encode()) for text in TEXTS)
    assert (found.evidence()["cut_texts"], found.evidence()["unknown_words"]) == (0, 0)
    cut = attack.measure(replace(shard, image_size=10))
    assert cut.evidence()["cut_texts"] == 2
