"""Prompts that make a model say a target: greedy decoding, brute force, passes, constraints, bad values."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.words.search import gradient_swaps
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Found, GuidedSearch, Victim
from assay.models.layers.token_model import TokenModel, word_vectors
from assay.models.lm import lm
from assay.workers import catalog
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import PAD_WORD, UNKNOWN_WORD, Vocabulary
from assay.workers.evaluation.forced_continuation import _Model, forced_continuation
from assay.workers.evaluation.gradient_word_swap import AttackedDocuments
from tests.support.shards import shard

NAMES = [f"{first}{second}rd" for first in "bcdfgk" for second in "aeiou"]
WORDS = [PAD_WORD, UNKNOWN_WORD, "<eos>", ",", "the", *NAMES]
VOCABULARY = Vocabulary(WORDS)
LENGTH = 8
TARGET = "card gord"


def text(lengths: tuple[int, ...] = (21, 5, 30, 9, 12, 16)) -> Documents:
    made = torch.Generator().manual_seed(3)
    found = []
    for length in lengths:
        drawn = torch.randint(3, len(WORDS), (length,), generator=made).tolist()
        found.append([*(WORDS[word] for word in drawn), "<eos>"])
    ids = [f"d{number}" for number in range(len(lengths))]
    return Documents(name="text", ids=ids, read=lambda index: list(found[index]), vocabulary=VOCABULARY)


@pytest.fixture(scope="module")
def model() -> TokenModel:
    torch.manual_seed(0)
    made = TokenModel(lm(len(WORDS), len(WORDS), width=16, depth=1, heads=2, hidden=16, length=LENGTH)).eval()
    with torch.no_grad():  # so that words matter
        word_vectors(made).weight.normal_(std=1.0, generator=torch.Generator().manual_seed(1))
    return made


def run(model: TokenModel, order: tuple[int, ...] = (0, 1, 2, 3, 4, 5), **params: Any) -> AttackedDocuments:
    fields = {name: params.pop(name) for name in ("seed", "batch_size") if name in params}
    chosen = {"target": TARGET, "max_share": 0.5} | params
    return forced_continuation(**chosen).measure(shard(model, text(), order, **fields))


def prompt(index: int, words: int = LENGTH - 1) -> Tensor:
    """The first words of a document, with room for a target of two words."""
    data = text()
    return VOCABULARY.ids(data.words(index))[:words]


def decoded(model: TokenModel, words: Tensor, count: int) -> Tensor:
    """Greedy decoding, word by word."""
    with torch.no_grad():
        for _ in range(count):
            words = torch.cat([words, model(words[None])[0, -1].argmax()[None]])
    return words[-count:]


def mean_loss(model: TokenModel, words: Tensor, target: Tensor) -> float:
    """-log p of the target by the chain rule, from all logits."""
    given, total = words, 0.0
    with torch.no_grad():
        for word in target.tolist():
            total -= float(model(given[None])[0, -1].double().log_softmax(0)[word])
            given = torch.cat([given, torch.tensor([word])])
    return total / len(target)


def test_one_pass_says_what_greedy_decoding_says(model: TokenModel) -> None:
    of = shard(model, text(), (0,))
    for index in range(6):
        for count in (1, 2, 3):
            words = prompt(index, LENGTH - 2)
            said = decoded(model, words, count)
            assert _Model(of, said).says([words]) == [True]
            for place in range(count):
                other = said.clone()
                other[place] = (other[place] + 1) % len(WORDS)
                assert _Model(of, other).says([words]) == [False]


def test_hits_and_losses_are_those_of_the_prompts(model: TokenModel, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = "gord gord"
    target = VOCABULARY.ids(chosen.split())
    found: list[tuple[Tensor, Found]] = []

    def search(victim: Victim, *given: Any) -> GuidedSearch:
        one = yield from real(victim, *given)
        found.append((victim.tokens, one))
        return one

    real = gradient_swaps.gcg
    monkeypatch.setattr(gradient_swaps, "gcg", search)
    table = run(model, target=chosen, steps=30, tried=24).table
    assert 0 < sum(table["hit"]) < 6
    assert sum(table["hit_before"]) == 0
    assert table["tokens"] == [2] * 6
    for index in range(6):
        before = prompt(index)
        (after,) = (one.tokens for words, one in found if torch.equal(words, before))
        assert table["hit"][index] == torch.equal(decoded(model, after, 2), target)
        assert table["nll_before"][index] == pytest.approx(2 * mean_loss(model, before, target), rel=1e-5)
        assert table["nll"][index] == pytest.approx(2 * mean_loss(model, after, target), rel=1e-5, abs=1e-6)
        assert table["swapped"][index] == int((before != after).sum())
        assert table["words"][index] == len(before)


@pytest.mark.costly
def test_one_step_with_every_swap_is_brute_force(model: TokenModel) -> None:
    target = VOCABULARY.ids(TARGET.split())
    found = run(model, max_share=0.01, steps=1, candidates=10_000, tried=100_000)
    swappable = VOCABULARY.ids(NAMES).tolist()
    for index in range(6):
        words = prompt(index)
        lowest = mean_loss(model, words, target)
        for place in range(len(words)):
            for word in swappable if int(words[place]) in swappable else []:
                changed = words.clone()
                changed[place] = word
                lowest = min(lowest, mean_loss(model, changed, target))
        assert found.table["nll"][index] == pytest.approx(2 * lowest, rel=1e-5)
        assert found.table["swapped"][index] <= 1


@pytest.mark.costly
def test_more_steps_never_make_the_target_less_likely(model: TokenModel) -> None:
    losses = [run(model, steps=steps).table["nll"] for steps in (1, 4, 16)]
    for first, second in itertools.pairwise(losses):
        assert all(later <= earlier * (1 + 1e-6) for earlier, later in zip(first, second, strict=True))
    before = run(model).table["nll_before"]
    assert all(one < other for one, other in zip(losses[-1], before, strict=True))


def test_a_prompt_after_which_the_model_says_it_anyway_is_left_alone(model: TokenModel) -> None:
    said = " ".join(WORDS[word] for word in decoded(model, prompt(0), 2).tolist())
    table = run(model, (0,), target=said).table
    assert (table["hit"], table["hit_before"], table["swapped"]) == ([True], [True], [0])
    assert table["nll"] == table["nll_before"]
    assert (table["queries"], table["forward"], table["backward"]) == ([1], [2], [0])


@pytest.mark.parametrize("tried", [1, 5])
def test_passes_are_counted_exactly_and_within_the_estimate(model: TokenModel, tried: int) -> None:
    params: dict[str, Any] = {"target": TARGET, "steps": 3, "tried": tried, "max_share": 0.5}
    seen, slopes = [0], [0]

    def count(_: nn.Module, given: tuple[Tensor, ...], vectors: Tensor) -> None:
        seen[0] += len(given[0])
        slopes[0] += len(given[0]) * torch.is_grad_enabled()

    hook = word_vectors(model).register_forward_hook(count)
    try:
        found = run(model, **params)
    finally:
        hook.remove()
    assert int(found.forward.sum()) == seen[0]
    assert int(found.backward.sum()) == slopes[0] > 0
    most = catalog.passes("forced_continuation", params)
    assert int(found.forward.max()) <= most.forward
    assert (int(found.forward.max()) == most.forward) or tried > 1, "of more, some are drawn twice"
    assert int(found.backward.max()) == most.backward


@pytest.mark.costly
def test_a_document_depends_on_neither_batch_nor_shard(model: TokenModel) -> None:
    whole = run(model).columns()
    small = run(model, batch_size=3).columns()
    apart = run(model, (2, 4)).columns()
    for name, column in whole.items():
        chosen = [column[2], column[4]]
        if "nll" in name:
            assert small[name] == pytest.approx(column, rel=1e-5)
            assert apart[name] == pytest.approx(chosen, rel=1e-5)
        else:
            assert small[name] == column, name
            assert apart[name] == chosen, name


@pytest.mark.costly
def test_documents_share_passes_also_where_memory_is_short(model: TokenModel) -> None:
    seen: list[int] = []

    def refuse(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen.append(len(given[0]))
        if len(given[0]) > limit:
            raise torch.OutOfMemoryError("no room")

    hook = word_vectors(model).register_forward_pre_hook(refuse)
    try:
        limit = 1000
        whole = run(model, batch_size=16)
        together = len(seen)
        seen.clear()
        for index in range(len(whole.ids)):
            run(model, (index,), batch_size=16)
        assert together < 0.75 * len(seen)
        limit = 3
        small = run(model, batch_size=16)
    finally:
        hook.remove()
    assert small.noted["reduced_batch"]["used"] <= 3
    for name, column in whole.columns().items():
        assert small.columns()[name] == pytest.approx(column, rel=1e-5) if "nll" in name else column, name


def test_draws_follow_the_seed(model: TokenModel) -> None:
    few = {"tried": 3, "steps": 4}
    assert run(model, seed=0, **few).columns() == run(model, seed=0, **few).columns()
    assert run(model, seed=0, **few).columns() != run(model, seed=1, **few).columns()


def test_the_share_and_the_cosine_hold_in_every_prompt(model: TokenModel) -> None:
    changes = 0
    vectors = nn.functional.normalize(word_vectors(model).weight.detach().double(), dim=1)
    for index in range(6):
        seen: list[Tensor] = []
        hook = word_vectors(model).register_forward_hook(
            lambda _, given, __, kept=seen: kept.extend(given[0])
        )
        try:
            table = run(model, (index,), steps=8, min_cosine=0.1).table
        finally:
            hook.remove()
        words = prompt(index)
        for given in seen:
            places = (given[: len(words)] != words).nonzero().flatten()
            assert len(places) <= max(1, table["eligible"][0] // 2)
            for old, new in zip(words[places].tolist(), given[places].tolist(), strict=True):
                assert {WORDS[old], WORDS[new]} <= set(NAMES)
                assert float(vectors[old] @ vectors[new]) >= 0.1
                changes += 1
    assert changes > 50


@pytest.mark.costly
def test_the_prompt_is_the_first_words_as_many_as_asked(model: TokenModel) -> None:
    assert run(model, (0, 1, 2), prompt=4).table["words"] == [4, 4, 4]
    assert run(model, (0, 1, 2), target="card").table["words"] == [8, 6, 8]
    assert run(model, (0, 1, 2), target="card bard kord").table["words"] == [6, 6, 6]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"target": "card Gorde nothing gord xx Gorde"}, r"'Gorde' \(nearest: 'gord'\), 'nothing', 'xx'$"),
        ({"target": "card <unk>"}, "not among the 35 of 'text': '<unk>'"),
        ({"target": "<pad>"}, "not among the 35 of 'text': '<pad>'"),
        ({"target": "  "}, "target is '  ', it must have at least one word"),
        ({"target": "card " * 9}, "target has 9 words, allowed are at most 8"),
        ({"target": TARGET, "prompt": 8}, "prompt is 8, allowed are at most 7: with a target of 2 words"),
    ],
)
def test_a_target_that_cannot_be_said_is_refused(
    model: TokenModel, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(model, **params)


def test_a_loss_that_is_not_finite_has_no_value() -> None:
    class Lost(nn.Module):
        sequence_length = LENGTH

        def __init__(self) -> None:
            super().__init__()
            self.vectors = nn.Embedding(len(WORDS), 4)

        def word_vectors(self) -> nn.Embedding:
            return self.vectors

        def forward(self, tokens: Tensor) -> Tensor:
            return self.vectors(tokens).sum(2, keepdim=True) * torch.full((len(WORDS),), math.nan)

    found = run(TokenModel(Lost()), (0, 1))
    assert found.table["nll"] == found.table["nll_before"] == [None, None]
    assert found.table["hit"] == [False, False]
    assert found.evidence() == {"nonfinite": 2}


def test_the_draws_are_the_attacks_own(model: TokenModel, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[Any] = []
    monkeypatch.setattr(Draws, "__init__", lambda self, *key: keys.append(key))
    monkeypatch.setattr(Draws, "below", lambda self, n: 0)
    run(model, (1, 3), seed=7)
    assert keys == [(7, "forced_continuation", "d1"), (7, "forced_continuation", "d3")]
