"""Swaps against language models: brute force, exact passes, other documents, keys, bad values."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.models.layers.token_model import TokenModel, word_vectors
from assay.models.lm import lm
from assay.service.metrics.tables.word_swap import word_swap_metrics
from assay.workers.data.formats.text import Documents
from assay.workers.data.formats.vocabulary import PAD_WORD, UNKNOWN_WORD, Vocabulary
from assay.workers.evaluation.gradient_word_swap import AttackedDocuments, gradient_word_swap
from assay.workers.evaluation.perplexity import perplexity
from tests.support.shards import shard

NAMES = [f"{first}{second}rd" for first in "bcdfgk" for second in "aeiou"]
WORDS = [PAD_WORD, UNKNOWN_WORD, "<eos>", ",", "the", *NAMES]
VOCABULARY = Vocabulary(WORDS)
LENGTH = 8


def text(lengths: tuple[int, ...] = (21, 5, 30)) -> Documents:
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


def run(model: TokenModel, order: tuple[int, ...] = (0, 1, 2), **params: Any) -> AttackedDocuments:
    fields = {name: params.pop(name) for name in ("seed", "batch_size") if name in params}
    return gradient_word_swap(**params).measure(shard(model, text(), order, **fields))


def kept_mean(model: TokenModel, words: Tensor, original: Tensor, scored: Tensor) -> float:
    """Mean loss of the scored words that stayed, of one window."""
    with torch.no_grad():
        losses = model.negative_log_likelihood(words[None, :-1], words[None, 1:])[0].double()
    stays = scored[1:] & (words == original)[1:]
    return float(losses[stays].mean())


def cosines(model: TokenModel) -> Tensor:
    """Of all pairs of words, (V, V)."""
    vectors = nn.functional.normalize(word_vectors(model).weight.detach().double(), dim=1)
    return vectors @ vectors.T


@pytest.mark.parametrize("search", ["gcg", "hotflip"])
def test_the_cosine_holds_in_every_text_put_to_the_model(model: TokenModel, search: Any) -> None:
    words = torch.from_numpy(text().stream().astype("int64"))
    plain = [words[:-1][start : start + LENGTH] for start in range(0, len(words) - 1, LENGTH)]
    seen: list[Tensor] = []
    hook = word_vectors(model).register_forward_hook(lambda _, given, __: seen.extend(given[0]))
    try:
        run(model, search=search, max_share=0.6, steps=5, beam=2, min_cosine=0.1)
    finally:
        hook.remove()
    pairs = set()
    for given in seen:
        whole = [one for one in plain if len(one) == len(given)]
        was = min(whole, key=lambda one: int((one != given).sum()))
        pairs |= {(int(a), int(b)) for a, b in zip(was, given, strict=True) if a != b}
    found = [float(cosines(model)[pair]) for pair in pairs]
    assert len(found) > 10
    assert min(found) >= 0.1


@pytest.mark.parametrize("least", [None, 0.3])
def test_one_swap_is_the_best_of_all(model: TokenModel, least: float | None) -> None:
    """HotFlip that puts every swap to the model, against all of them by hand, window by window."""
    near = cosines(model) >= (-1 if least is None else least)
    data = text()
    words = torch.from_numpy(data.stream().astype("int64"))
    first = range(data.starts[0], data.starts[1])
    swappable = [VOCABULARY.words.index(name) for name in NAMES]
    after = words.clone()
    for start in range(0, len(words) - 1, LENGTH):
        part = slice(start, min(start + LENGTH, len(words) - 1) + 1)
        given, plain = after[part].clone(), words[part]
        scored = torch.tensor([place in first and place >= 1 for place in range(part.start, part.stop)])
        free = [
            place
            for place in range(len(given) - 1)
            if scored[place] and int(plain[place]) in swappable and given[place] == plain[place]
        ]
        best, highest = given, kept_mean(model, given, given, scored) if free else 0.0
        for place in free:
            for word in swappable:
                changed = given.clone()
                changed[place] = word
                if (
                    word != given[place]
                    and near[plain[place], word]
                    and (value := kept_mean(model, changed, given, scored)) > highest + 1e-9
                ):
                    best, highest = changed, value
        after[part] = best
    one: dict[str, Any] = {"search": "hotflip", "max_share": 0.01, "steps": 1, "candidates": 10_000}
    found = run(model, (0,), min_cosine=least, **one)
    assert found.table["swapped"] == [int((after != words).sum())]
    with torch.no_grad():
        total = 0.0
        for start in range(0, len(first), LENGTH):
            window = after[start : start + LENGTH + 1]
            losses = model.negative_log_likelihood(window[None, :-1], window[None, 1:])[0].double()
            for offset, loss in enumerate(losses.tolist(), start=1):
                place = start + offset
                if place in first and after[place] == words[place]:
                    total += loss
    assert found.table["kept_nll"][0] == pytest.approx(total, rel=1e-5)


@pytest.mark.costly
@pytest.mark.parametrize("search", ["gcg", "hotflip"])
def test_the_words_that_stay_are_predicted_worse(model: TokenModel, search: Any) -> None:
    found = run(model, search=search, max_share=0.3, steps=6)
    metrics = word_swap_metrics(found.columns())
    after, before = (metrics[name].value for name in ("perplexity_unswapped", "perplexity_unswapped_before"))
    assert after is not None
    assert before is not None
    assert after > 1.05 * before
    table = found.table
    for swapped, eligible in zip(table["swapped"], table["eligible"], strict=True):
        assert 0 < swapped <= max(1, 0.3 * eligible) + eligible / LENGTH
    more = word_swap_metrics(run(model, search=search, max_share=0.8, steps=12).columns())
    assert more["swapped_words"].value > metrics["swapped_words"].value  # type: ignore[operator]


def test_without_a_chance_nothing_changes() -> None:
    class Deaf(nn.Module):
        sequence_length = LENGTH

        def __init__(self) -> None:
            super().__init__()
            self.vectors = nn.Embedding(len(WORDS), 4)

        def word_vectors(self) -> nn.Embedding:
            return self.vectors

        def forward(self, tokens: Tensor) -> Tensor:
            return 0 * self.vectors(tokens).sum(2, keepdim=True) + torch.zeros(len(WORDS))

    deaf = TokenModel(Deaf())
    found = run(deaf)
    plain = perplexity(window="blocks").measure(shard(deaf, text()))
    assert found.table["swapped"] == [0, 0, 0]
    assert found.table["nll"] == list(plain.nll)
    assert found.table["kept_nll"] == found.table["kept_nll_before"] == list(plain.nll)


@pytest.mark.parametrize("search", ["gcg", "hotflip"])
def test_passes_are_counted_exactly(model: TokenModel, search: Any) -> None:
    seen = [0]
    hook = word_vectors(model).register_forward_hook(
        lambda _, given, __: seen.__setitem__(0, seen[0] + len(given[0]))
    )
    try:
        found = run(model, search=search, steps=3, tried=5, candidates=4, max_share=0.3, beam=2)
    finally:
        hook.remove()
    assert int(found.forward.sum()) == seen[0]
    assert int(found.backward.sum()) > 0


@pytest.mark.costly
@pytest.mark.parametrize("search", ["gcg", "hotflip"])
def test_a_document_depends_on_neither_batch_nor_shard(model: TokenModel, search: Any) -> None:
    whole = run(model, search=search, max_share=0.3).columns()
    small = run(model, search=search, max_share=0.3, batch_size=3).columns()
    apart = run(model, (2,), search=search, max_share=0.3).columns()
    for name, column in whole.items():
        if name == "id" or "nll" not in name:
            assert small[name] == column, name
            assert apart[name] == column[2:], name
        else:
            assert small[name] == pytest.approx(column, rel=1e-5)
            assert apart[name] == pytest.approx(column[2:], rel=1e-5)


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
        whole = run(model, batch_size=64, max_share=0.3)
        together = len(seen)
        seen.clear()
        for index in range(len(whole.ids)):
            run(model, (index,), batch_size=64, max_share=0.3)
        assert together < 0.75 * len(seen)
        limit = 3
        small = run(model, batch_size=64, max_share=0.3)
    finally:
        hook.remove()
    assert small.noted["reduced_batch"]["used"] <= 3
    for name, column in whole.columns().items():
        assert small.columns()[name] == pytest.approx(column, rel=1e-5) if "nll" in name else column, name


def test_draws_follow_the_seed(model: TokenModel) -> None:
    few = {"max_share": 0.3, "tried": 3}
    assert run(model, seed=0, **few).columns() == run(model, seed=0, **few).columns()
    assert run(model, seed=0, **few).columns() != run(model, seed=1, **few).columns()


def test_what_is_refused(model: TokenModel) -> None:
    with pytest.raises(ValueError, match="search is 'beam', allowed are gcg, hotflip"):
        gradient_word_swap(search="beam")  # type: ignore[arg-type]

    class Closed(nn.Module):
        sequence_length = LENGTH

        def forward(self, tokens: Tensor) -> Tensor:
            return nn.functional.one_hot(tokens, len(WORDS)).float()

    with pytest.raises(ValueError, match="has no method word_vectors"):
        run(TokenModel(Closed()))
