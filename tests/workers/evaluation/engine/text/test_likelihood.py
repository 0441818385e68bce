"""Windows over a text: what is scored, by which context, and that batches change nothing."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.token_model import TokenModel
from assay.workers.evaluation.engine.text.likelihood import Scores, Windows, score
from tests.support.emulated_device.device import emulated_device

WORDS = 11


class Remembering(nn.Module):
    """Predicts from the mean of the embeddings of all words so far, and from how many there were."""

    sequence_length = 64

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.head = nn.Linear(8, WORDS)
        self.seen: list[tuple[int, ...]] = []

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, N, V)."""
        self.seen.append(tuple(tokens.shape))
        like = self.head.weight
        steps = torch.arange(1, tokens.shape[1] + 1, dtype=like.dtype, device=like.device)[:, None]
        logits: Tensor = self.head(self.embedding(tokens).cumsum(1) / steps + steps.log())
        return logits


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


@pytest.fixture
def model() -> TokenModel:
    torch.manual_seed(0)
    return TokenModel(Remembering().double()).eval()


@pytest.fixture
def words() -> Tensor:
    return torch.randint(0, WORDS, (50,), generator=torch.Generator().manual_seed(1), dtype=torch.int32)


def one_by_one(model: TokenModel, words: Tensor, windows: Windows) -> list[float]:
    """The protocol in its own words: a window at a time, in batches of one, with all logits."""
    text, losses = words.long(), [math.nan] * len(words)
    begin, done = 0, 1
    while done < len(text):
        seen = text[begin : begin + windows.length]
        logits = model(seen[None])[0].log_softmax(-1)  # (N, V)
        for place in range(len(seen)):
            target = begin + place + 1
            if done <= target < len(text):
                losses[target] = -float(logits[place, text[target]])
        done = min(begin + windows.length, len(text) - 1) + 1
        begin += windows.stride
    return losses


def scored(model: TokenModel, words: Tensor, windows: Windows, batch_size: int = 7) -> Scores:
    return score(model, words, [(0, len(words))], windows, batch_size=batch_size)


@pytest.mark.parametrize(("length", "stride"), [(8, 1), (8, 3), (8, 8), (1, 1), (49, 1), (60, 5), (64, 64)])
def test_equals_the_protocol_one_window_at_a_time(
    model: TokenModel, words: Tensor, length: int, stride: int
) -> None:
    windows = Windows(length, stride)
    expected = one_by_one(model, words, windows)
    for batch_size in (1, 7, 100):
        found = scored(model, words, windows, batch_size).losses
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert not np.isnan(found[1:]).any()


def test_what_is_found_for_a_word_does_not_depend_on_what_else_is_asked_for(
    model: TokenModel, words: Tensor
) -> None:
    windows = Windows(8, 3)
    whole = scored(model, words, windows).losses
    parts: Sequence[tuple[int, int]] = [(0, 5), (5, 21), (21, 22), (22, 50)]
    for wanted in ([part] for part in parts):
        found = score(model, words, wanted, windows, batch_size=2).losses
        inside = slice(max(wanted[0][0], 1), wanted[0][1])
        np.testing.assert_allclose(found[inside], whole[inside], rtol=1e-12)
        assert np.isnan(found).sum() == len(words) - (inside.stop - inside.start)


def test_targets_may_be_other_words_than_those_that_are_seen(model: TokenModel, words: Tensor) -> None:
    windows, other = Windows(8, 8), words.clone()
    other[20] = (other[20] + 1) % WORDS
    plain = scored(model, words, windows).losses
    found = score(model, words, [(0, 50)], windows, batch_size=4, targets=other).losses
    assert np.flatnonzero(found[1:] != plain[1:]).tolist() == [19]


def test_sliding_takes_as_many_passes_as_words_and_blocks_few(model: TokenModel, words: Tensor) -> None:
    backbone = model.backbone
    assert isinstance(backbone, Remembering)
    scored(model, words, Windows(8, 1), batch_size=10)
    assert backbone.seen == [(1, 8), (10, 8), (10, 8), (10, 8), (10, 8), (1, 8)]
    backbone.seen.clear()
    scored(model, words, Windows(8, 8), batch_size=10)
    assert backbone.seen == [(6, 8), (1, 1)]


@pytest.mark.parametrize(("length", "stride"), [(8, 1), (8, 3), (8, 8), (1, 1), (60, 5)])
@pytest.mark.parametrize("wanted", [[(0, 50)], [(0, 5), (21, 22), (40, 50)], [(30, 33)]])
def test_no_token_of_a_pass_is_padding_and_passes_are_full(
    model: TokenModel, words: Tensor, length: int, stride: int, wanted: list[tuple[int, int]]
) -> None:
    backbone, windows = model.backbone, Windows(length, stride)
    assert isinstance(backbone, Remembering)
    for batch_size in (1, 4, 7):
        backbone.seen.clear()
        score(model, words, wanted, windows, batch_size=batch_size)
        chosen = [windows.window(number, 50) for number in windows.numbers(wanted, 50)]
        assert sum(rows * tokens for rows, tokens in backbone.seen) == sum(one.length for one in chosen)
        # Only the first window of a text and its last are of another kind than the rest.
        assert len(backbone.seen) <= -(-len(chosen) // batch_size) + 2


def test_losses_are_read_while_the_device_has_the_next_pass(model: TokenModel, words: Tensor) -> None:
    """The emulated device refuses to read what has not arrived."""
    windows = Windows(8, 3)
    here = scored(model, words, windows, batch_size=4).losses
    with emulated_device() as device:
        there = copy.deepcopy(model).to(device.device)
        backbone = there.backbone
        assert isinstance(backbone, Remembering)
        backbone.seen.clear()
        device.forget_counts()
        told: list[tuple[int, int]] = []
        found = score(
            there,
            words,
            [(0, len(words))],
            windows,
            batch_size=4,
            device=device.device,
            progress=lambda done: told.append((done, len(backbone.seen))),
        ).losses
        assert not any("likelihood.py" in place.line for place in device.waits + device.uploads)
        assert device.event_waits == len(backbone.seen) == len(told)
    np.testing.assert_allclose(found, here, rtol=1e-12)
    # A pass is noted when the next one is queued.
    assert [passes for _, passes in told] == [*range(2, len(told) + 1), len(told)]


def test_impossible_requests_are_refused(model: TokenModel, words: Tensor) -> None:
    with pytest.raises(ValueError, match="stride is 9; allowed: from 1 to the length, 8"):
        Windows(8, 9)
    with pytest.raises(ValueError, match="batch_size is 0"):
        scored(model, words, Windows(8, 1), batch_size=0)
