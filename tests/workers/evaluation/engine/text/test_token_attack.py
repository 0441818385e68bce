"""Gradient-guided attacks on a small text classifier: passes, keys, vocabulary and the second judgement."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.models.layers.token_model import TokenModel, word_vectors
from assay.models.lm import lm
from assay.models.sequence_transformer import sequence_transformer
from assay.models.text_classifier import text_classifier
from assay.workers.data.formats.text import Sentences
from assay.workers.data.formats.vocabulary import PAD, PAD_WORD, UNKNOWN_WORD, Vocabulary
from assay.workers.evaluation.deepwordbug import deepwordbug
from assay.workers.evaluation.engine.attack import searches
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.engine.text import reader as text_reader
from assay.workers.evaluation.engine.text import token_attack
from assay.workers.evaluation.engine.text.outcomes import TextRow
from assay.workers.evaluation.engine.text.token_attack import TokenAttack, swappable
from assay.workers.evaluation.gcg import gcg
from assay.workers.evaluation.hotflip import hotflip

NAMES = [f"{first}{second}ord" for first in "bcdfgklm" for second in "aeiou"]
VOCABULARY = Vocabulary([PAD_WORD, UNKNOWN_WORD, "the", ".", "x1", "<eos>", *NAMES])
ATTACKS = {"hotflip": hotflip(max_share=0.4, beam=2), "gcg": gcg(max_share=0.4, steps=5, tried=8)}
each_attack = pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)


def network(kind: str = "text_classifier") -> TokenModel:
    torch.manual_seed(0)
    size: dict[str, Any] = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "length": 12}
    backbones = {
        "text_classifier": lambda: text_classifier(
            2, len(VOCABULARY), backbone=lambda *given: lm(*given, **size)
        ),
        "sequence_transformer": lambda: sequence_transformer(2, len(VOCABULARY), **size),
    }
    model = TokenModel(backbones[kind]()).eval()
    with torch.no_grad():  # so that words matter
        word_vectors(model).weight.normal_(std=1.0, generator=torch.Generator().manual_seed(1))
    return model


def shard(model: TokenModel, order: Sequence[int] = range(10), **fields: Any) -> Shard:
    made = torch.Generator().manual_seed(2)
    texts = []
    for length in range(4, 14):  # the last are cut
        drawn = [NAMES[int(one)] for one in torch.randint(len(NAMES), (length,), generator=made)]
        texts.append(" ".join(["the", *drawn, "."]))
    labels = [int(model(VOCABULARY.ids(text.split())[None, :12]).argmax()) for text in texts[:9]]
    data = Sentences(
        name="words",
        class_names=("a", "b"),
        ids=[f"t{number}" for number in range(10)],
        sentences=texts,
        labels=[*labels, 1 - int(model(VOCABULARY.ids(texts[9].split())[None, :12]).argmax())],
        vocabulary=VOCABULARY,
    )
    plain = Shard(
        data=data,
        order=list(order),
        classifier=model,
        image_size=12,
        batch_size=16,
        device=torch.device("cpu"),
    )
    return replace(plain, **fields)


def rows_of(attack: TokenAttack, of: Shard) -> tuple[TextRow, ...]:
    return attack.measure(of).rows


@each_attack
@pytest.mark.parametrize("kind", ["text_classifier", "sequence_transformer"])
def test_a_success_is_a_wrong_answer_to_the_text(attack: TokenAttack, kind: str) -> None:
    model = network(kind)
    found = rows_of(attack, shard(model))
    assert {row.status for row in found} >= {"skipped", "succeeded"}
    for row in found:
        answer = int(model(VOCABULARY.ids(row.text.split())[None, :12]).argmax())
        assert answer == row.prediction
        assert (row.status == "failed") == (answer == row.label)
        before, after = row.original.split(), row.text.split()
        changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        assert len(changed) == row.changed <= max(1, int(0.4 * row.words))
        assert all(old in NAMES and new in NAMES for old, new in changed)
        assert (row.changed > 0) >= (row.status == "succeeded")


@pytest.mark.costly
@pytest.mark.parametrize("attack", [hotflip, gcg])
def test_the_cosine_holds_in_every_row(attack: Any) -> None:
    """By the model's vectors, of each word and what it became; without the limit it does not hold."""
    model = network()
    vectors = functional.normalize(word_vectors(model).weight.detach().double(), dim=1)

    def cosines(least: float | None) -> list[float]:
        rows = rows_of(attack(max_share=1.0, steps=6, min_cosine=least), shard(model))
        pairs = [pair for row in rows for pair in zip(row.original.split(), row.text.split(), strict=True)]
        ids = [VOCABULARY.ids(pair) for pair in pairs if pair[0] != pair[1]]
        return [float(vectors[one] @ vectors[other]) for one, other in ids]

    assert min(cosines(0.1)) >= 0.1
    assert min(cosines(None)) < 0.1
    assert cosines(1.0) == []


@each_attack
def test_passes_are_counted_exactly(attack: TokenAttack) -> None:
    model = network()
    seen: list[int] = []
    slopes: list[int] = []

    def count(_: nn.Module, given: tuple[Tensor, ...], logits: Tensor) -> None:
        seen.append(len(given[0]))
        if logits.requires_grad:
            slopes.append(len(logits))

    of = shard(model)
    model.register_forward_hook(count)
    found = attack.measure(of)
    assert int(found.forward.sum()) == sum(seen)
    assert int(found.backward.sum()) == sum(slopes) > 0  # passes under autograd
    assert found.columns()["backward"] == found.backward.tolist()


@each_attack
def test_a_row_depends_on_neither_batch_nor_shard(attack: TokenAttack) -> None:
    model = network()
    whole = rows_of(attack, shard(model))
    small = rows_of(attack, shard(model, batch_size=3))
    parts = (*rows_of(attack, shard(model, range(6, 10))), *rows_of(attack, shard(model, range(6))))
    for found in (small, sorted(parts, key=lambda row: int(row.id[1:]))):
        for row, other in zip(whole, found, strict=True):
            assert other.loss == pytest.approx(row.loss, rel=1e-4)
            assert replace(other, loss=0, confidence=0, clean_confidence=0) == replace(
                row, loss=0, confidence=0, clean_confidence=0
            )


@each_attack
def test_searches_share_passes_with_little_padding(
    attack: TokenAttack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device that is busy with a few tokens; one search at a time asks for more passes."""
    monkeypatch.setitem(text_reader.BUSY, "cpu", 32)

    def passes(in_hand: int | None) -> tuple[list[tuple[int, int]], tuple[TextRow, ...]]:
        model, seen = network(), list[tuple[int, int]]()
        word_vectors(model).register_forward_hook(
            lambda _, given, __: seen.append((int((given[0] != PAD).sum()), given[0].numel()))
        )
        if in_hand is not None:
            alone = functools.partial(_together, in_hand)
            monkeypatch.setattr(token_attack, "together", alone)
        of = shard(model)
        seen.clear()
        return seen, rows_of(attack, of)

    many, rows = passes(None)
    single, same = passes(1)
    assert [row.text for row in rows] == [row.text for row in same]
    assert len(many) < 0.75 * len(single)
    for shared in (many, single):
        read, computed = map(sum, zip(*shared, strict=True))
        assert computed - read < text_reader.MAX_PADDING * computed
    assert sum(read for read, _ in many) == sum(read for read, _ in single)


def _together(in_hand: int, begun: Any, _: int, *answers: Any) -> Any:
    return searches.together(begun, in_hand, *answers)


@each_attack
def test_where_memory_is_short_searches_share_smaller_passes(attack: TokenAttack) -> None:
    whole, model = rows_of(attack, shard(network())), network()

    def refuse(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        if len(given[0]) > 5:
            raise torch.OutOfMemoryError("no room")

    of = shard(model)
    model.register_forward_pre_hook(refuse)
    found = attack.measure(of)
    assert found.evidence()["reduced_batch"]["used"] <= 5
    for row, other in zip(whole, found.rows, strict=True):
        assert (row.text, row.status, row.queries) == (other.text, other.status, other.queries)


def test_draws_follow_the_seed() -> None:
    model = network()
    texts = {seed: [row.text for row in rows_of(ATTACKS["gcg"], shard(model, seed=seed))] for seed in (0, 1)}
    assert texts[0] != texts[1]


@each_attack
def test_the_model_is_left_as_it_was(attack: TokenAttack) -> None:
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attack.measure(shard(model))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def test_words_that_do_not_survive_reading_are_no_candidates() -> None:
    class LowerCase(Sentences):
        def encode(self, text: str) -> Tensor:
            return super().encode(text.lower())

    made: dict[str, Any] = {
        "name": "cased",
        "class_names": ("a", "b"),
        "ids": ["t"],
        "sentences": ["good"],
        "labels": [0],
        "vocabulary": Vocabulary([PAD_WORD, UNKNOWN_WORD, "good", "Good", "the", "a-b", "1", "<eos>", "bad"]),
    }
    assert swappable(Sentences(**made)).tolist() == [2, 3, 8]
    assert swappable(LowerCase(**made)).tolist() == [2, 8]


def test_data_that_cut_words_are_refused() -> None:
    class Letters(Sentences):
        def encode(self, text: str) -> Tensor:
            return self.vocabulary.ids(text)

    vocabulary = Vocabulary([PAD_WORD, UNKNOWN_WORD, "good", "bad"])
    data = Letters(
        name="letters", class_names=("a",), ids=["t"], sentences=["good"], labels=[0], vocabulary=vocabulary
    )
    with pytest.raises(ValueError, match=r"'letters' cut words into several tokens"):
        swappable(data)


@each_attack
def test_a_model_without_word_vectors_is_refused_by_name(attack: TokenAttack) -> None:
    class Sums(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            total = tokens.sum(1).float()
            return torch.stack([total, -total], dim=1)

    with pytest.raises(ValueError, match=r"the model Sums has no method word_vectors"):
        attack.measure(shard(TokenModel(Sums())))


class Doubtful(nn.Module):
    """The same model, whose logits have normal noise."""

    def __init__(self, model: TokenModel, deviation: float) -> None:
        super().__init__()
        self.model = model
        self.deviation = deviation

    def word_vectors(self) -> nn.Embedding:
        return word_vectors(self.model)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.model(tokens)
        return logits + self.deviation * torch.randn_like(logits)


TWICE: dict[str, Any] = {
    "hotflip": hotflip(max_share=0.4, beam=2, eot=3, model_draws=40),
    "gcg": gcg(max_share=0.4, steps=5, tried=8, eot=3, model_draws=40),
    "deepwordbug": deepwordbug(eot=3, model_draws=40),
}


@pytest.mark.costly
@pytest.mark.parametrize("name", TWICE)
def test_a_random_model_has_expected_accuracies(name: str) -> None:
    """The shares are those of the texts, within four standard deviations of 40 and 2000 draws."""
    model = Doubtful(network(), 0.5).eval()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        found = TWICE[name].measure(shard(model))  # type: ignore[arg-type]
        columns = found.columns()
        for row in found.rows:
            for text, share in ((row.text, row.expected), (row.original, row.clean_expected)):
                tokens = VOCABULARY.ids(text.split())[None, :12].expand(2000, -1)
                true = float((model(tokens).argmax(1) == row.label).double().mean())
                assert abs(true - share) < 4 * (0.25 * (1 / 40 + 1 / 2000)) ** 0.5
    assert columns["expected"] == [row.expected for row in found.rows]
    assert sum(columns["expected"]) < sum(columns["clean_expected"])
    for row in found.rows:
        assert row.expected is not None
        assert row.clean_expected is not None
        attacked = "succeeded" if row.expected <= 0.5 else "failed"
        assert row.status == (attacked if row.clean_expected > 0.5 else "skipped")


@pytest.mark.parametrize("name", TWICE)
def test_passes_that_are_all_alike_change_nothing_but_their_number(name: str) -> None:
    once: Any = {"hotflip": ATTACKS["hotflip"], "gcg": ATTACKS["gcg"], "deepwordbug": deepwordbug()}[name]
    single, thrice = (attack.measure(shard(network())) for attack in (once, TWICE[name]))
    for row, other in zip(single.rows, thrice.rows, strict=True):
        assert (other.text, other.status, other.queries) == (row.text, row.status, row.queries)
        assert other.passes == 3 * row.passes + 80
        assert other.backward == 3 * row.backward
        assert other.expected == float(row.status == "failed")
        assert row.expected is None
    assert "expected" not in single.columns()
