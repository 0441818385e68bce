from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.models.layers.token_model import TokenModel
from assay.models.lm import lm
from assay.models.rpc_symmlm import rpc_symmlm
from assay.models.symmlm import symmlm
from assay.service.catalog.catalog import load
from assay.workers import catalog
from assay.workers.catalog import build
from assay.workers.evaluation.engine.text.causality import causality_evidence, find_leak

VOCABULARY, LENGTH = 40, 12
SHAPE: dict[str, Any] = {"width": 16, "depth": 2, "heads": 2, "hidden": 16, "length": LENGTH, "cutoffs": [10]}
LEAKING: dict[str, Any] = {
    "rpc_layers": "all",
    "mu_tokens": "sequence",
    "encoder": True,
}  # built, not accepted
SHAPE["initialization"] = "scaled"  # with the released one, the sparse part of RPC-Attention is zero at first
WINDOWS = torch.randint(1, VOCABULARY, (3, LENGTH + 1), generator=torch.Generator().manual_seed(4))
CAUSAL = sorted(entry.name for entry in load().list("attention") if (entry.facts or {}).get("causal_form"))


def seeded(make: Any) -> TokenModel:
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        return TokenModel(make()).eval()


class Embedded(nn.Module):
    """Logits from an embedding; by itself the prediction of a word depends on the last word alone."""

    def __init__(self) -> None:
        super().__init__()
        self.sequence_length = LENGTH
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.head = nn.Linear(8, VOCABULARY)

    def mixed(self, tokens: Tensor) -> Tensor:
        """What is predicted from, (B, N, 8)."""
        embedded: Tensor = self.embedding(tokens)
        return embedded

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(self.mixed(tokens))
        return logits


class LastWord(Embedded):
    """The last word of a window is seen everywhere, faintly."""

    def mixed(self, tokens: Tensor) -> Tensor:
        embedded = super().mixed(tokens)
        return embedded + 1e-3 * embedded[:, -1:]


class NextWord(Embedded):
    """The classic slip: a window that is shifted by one word too many."""

    def mixed(self, tokens: Tensor) -> Tensor:
        return super().mixed(torch.cat([tokens[:, 1:], tokens[:, -1:]], dim=1))


class Neighbour(Embedded):
    """Sees the other windows of the batch; sliding ones hold the words that this one is to predict."""

    def mixed(self, tokens: Tensor) -> Tensor:
        embedded = super().mixed(tokens)
        return embedded + embedded.mean(dim=(0, 1))


class Noisy(Embedded):
    def mixed(self, tokens: Tensor) -> Tensor:
        embedded = super().mixed(tokens)
        return embedded + torch.randn_like(embedded)


class Single(Embedded):
    """Runs in float32 only, as a program of fixed types."""

    def mixed(self, tokens: Tensor) -> Tensor:
        embedded = super().mixed(tokens)
        if embedded.dtype is not torch.float32:
            raise RuntimeError("expected m1 and m2 to have the same dtype")
        return embedded.cumsum(1)


class SingleLeak(Single):
    def mixed(self, tokens: Tensor) -> Tensor:
        return super().mixed(tokens) + super().mixed(tokens)[:, -1:]


class Overflowing(Embedded):
    """An infinity in the first words when a later one is large: a change, not a number."""

    def mixed(self, tokens: Tensor) -> Tensor:
        embedded = super().mixed(tokens)
        return torch.where(tokens.amax(1)[:, None, None] == WINDOWS.max(), torch.inf, embedded)


@pytest.mark.parametrize("name", CAUSAL)
def test_every_causal_attention_of_the_catalog_sees_no_later_word(name: str) -> None:
    attention = build("attention", name, {"patches": LENGTH} if name == "scaled_learned" else {})
    model = seeded(lambda: lm(VOCABULARY, VOCABULARY, attention=attention, **SHAPE))
    assert find_leak(model, WINDOWS, VOCABULARY) is None


def test_the_published_models_see_no_later_word() -> None:
    for make in (symmlm, rpc_symmlm):
        layers = {} if make is symmlm else {"rpc_layers": "all"}
        model = seeded(lambda make=make, layers=layers: make(VOCABULARY, VOCABULARY, **SHAPE, **layers))
        before = {key: value.clone() for key, value in model.state_dict().items()}
        assert find_leak(model, WINDOWS, VOCABULARY) is None
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_penalty_over_the_whole_sequence_is_found() -> None:
    model = seeded(lambda: rpc_symmlm(VOCABULARY, VOCABULARY, **SHAPE, **LEAKING))
    found = find_leak(model, WINDOWS, VOCABULARY)
    assert found is not None
    assert found.words > found.compared / 2
    assert found.change > 1e-5


@pytest.mark.parametrize("make", [LastWord, NextWord, Neighbour, SingleLeak])
def test_models_that_see_ahead_are_found(make: type[Embedded]) -> None:
    model = seeded(make)
    found = find_leak(model, WINDOWS, VOCABULARY)
    assert found is not None
    assert 0 < found.words <= found.compared
    inputs, targets = WINDOWS[:, :-1], WINDOWS[:, 1:]
    other = inputs.clone()
    other[:, -1] = 1
    with torch.no_grad():
        losses = [
            functional.cross_entropy(model(one).mT, targets, reduction="none") for one in (inputs, other)
        ]
    if make is not NextWord:
        assert float((losses[0] - losses[1])[:, 0].abs().max()) > 0, "the premise: the first loss changed"


@pytest.mark.parametrize("make", [Embedded, Noisy, Single])
def test_models_that_see_no_later_word_raise_nothing(make: type[Embedded]) -> None:
    assert find_leak(seeded(make), WINDOWS, VOCABULARY) is None


def test_the_next_word_alone_is_seen_at_every_cut() -> None:
    """Of each window, one word before each of the five cuts."""
    found = find_leak(seeded(NextWord), WINDOWS, VOCABULARY)
    assert found is not None
    assert (found.words, found.compared) == (3 * 5, 3 * (1 + 3 + 6 + 9 + 11))


def test_a_loss_that_becomes_infinite_is_a_change() -> None:
    found = find_leak(seeded(Overflowing), WINDOWS, VOCABULARY)
    assert found is not None
    assert found.change == float("inf")


def text(words: int, **fields: Any) -> Any:
    stream = np.arange(words, dtype=np.int32) % VOCABULARY
    shown = {"task": "language", "classes": VOCABULARY, "image_size": LENGTH, "device": torch.device("cpu")}
    return cast(Any, SimpleNamespace(text=SimpleNamespace(stream=lambda: stream), **(shown | fields)))


def test_evidence_of_a_shard() -> None:
    leaking = text(300, language_model=seeded(NextWord))
    found = causality_evidence(leaking)["leaks_future"]
    assert (found["words"], found["compared"]) == (4 * 5, 4 * 30)
    assert found["change"] > 1e-3
    assert causality_evidence(text(300, language_model=seeded(Embedded))) == {}
    assert catalog.task("sequence").evidence(text(300, language_model=None)) == {}
    assert causality_evidence(text(2, language_model=seeded(NextWord))) == {}, "no two words to look at"
    few = causality_evidence(text(LENGTH - 2, language_model=seeded(NextWord)))
    assert few["leaks_future"]["compared"] < 30, "a text shorter than a window"


class Pooled(Embedded):
    """Its statistic over the window is too small to change a loss that is computed, but it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.Identity()
        self.pool.sees_later_tokens = True


def test_a_model_that_says_that_it_sees_later_tokens_leaks_without_a_change() -> None:
    model = seeded(Pooled)
    assert find_leak(model, WINDOWS, VOCABULARY) is None, "the premise: the probe finds nothing"
    stated = {"words": 0, "compared": 0, "change": 0.0, "by_construction": ["Identity"]}
    assert causality_evidence(text(300, language_model=model)) == {"leaks_future": stated}
    assert causality_evidence(text(2, language_model=model)) == {"leaks_future": stated}


@pytest.mark.parametrize("tokens", ["prefix", "sequence"])
def test_a_penalty_over_the_sequence_leaks_where_the_sparse_part_is_empty(tokens: str) -> None:
    """With a large regularization S is 0, so that no loss depends on the penalty."""
    shape = SHAPE | LEAKING | {"regularization": 1e6, "mu_tokens": tokens}
    model = seeded(lambda: rpc_symmlm(VOCABULARY, VOCABULARY, **shape))
    assert find_leak(model, WINDOWS, VOCABULARY) is None
    found = causality_evidence(text(300, language_model=model))
    assert found.get("leaks_future", {}).get("by_construction", []) == ["rpc_causal"] * (tokens == "sequence")


def test_an_infinite_change_is_null_in_json() -> None:
    shard = text(300, language_model=seeded(Overflowing))
    assert causality_evidence(shard).get("leaks_future", {"change": None})["change"] is None
