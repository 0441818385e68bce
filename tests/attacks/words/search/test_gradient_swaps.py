"""Gradient-guided searches against models whose best swap is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from assay.attacks.words.search import gradient_swaps
from assay.attacks.words.search.draws import Draws
from assay.attacks.words.search.gradient_swaps import Found, GuidedSearch, Heard, Slopes, Victim

VOCABULARY, WIDTH = 30, 6
DRAWS = Draws(0, "gcg", "a")


@dataclass(frozen=True, kw_only=True)
class Known(Victim):
    """A victim, and the model that is asked."""

    model: Bag


def run(search: GuidedSearch, victim: Known) -> Found:
    """A search alone."""
    answer: Any = None
    while True:
        try:
            question = search.send(answer)
        except StopIteration as end:
            found: Found = end.value
            return found
        own = victim.model.gradient if isinstance(question, Slopes) else victim.model.ask
        answer = own(question.texts)


def hotflip(victim: Known, steps: int, candidates: int, beam: int) -> Found:
    return run(gradient_swaps.hotflip(victim, steps, candidates, beam), victim)


def gcg(victim: Known, draws: Draws, steps: int, candidates: int, tried: int) -> Found:
    return run(gradient_swaps.gcg(victim, draws, steps, candidates, tried), victim)


class Bag:
    """Logits of the sum of the words' vectors: linear, or with a tanh before the output."""

    def __init__(self, seed: int, *, linear: bool) -> None:
        made = torch.Generator().manual_seed(seed)
        self.vectors = torch.randn(VOCABULARY, WIDTH, generator=made, dtype=torch.float64)
        self.weights = torch.randn(2, WIDTH, generator=made, dtype=torch.float64)
        self.linear = linear
        self.asked: list[Tensor] = []

    def logits(self, vectors: Tensor) -> Tensor:
        summed = vectors.sum(1)
        return (summed if self.linear else summed.tanh()) @ self.weights.T

    def loss(self, texts: Tensor) -> Tensor:
        """The margin of the wrong class for a linear model, whose first-order estimate is exact."""
        return self.objective(self.logits(self.vectors[texts]))

    def objective(self, logits: Tensor) -> Tensor:
        if self.linear:
            return logits[:, 1] - logits[:, 0]
        return cross_entropy(logits, torch.zeros(len(logits), dtype=torch.int64), reduction="none")

    def ask(self, texts: Tensor) -> Sequence[Heard]:
        self.asked += list(texts)
        return [Heard(loss, False) for loss in self.loss(texts).tolist()]

    def gradient(self, texts: Tensor) -> Tensor:
        held = self.vectors[texts].requires_grad_()
        return torch.autograd.grad(self.objective(self.logits(held)).sum(), held)[0]

    def victim(self, tokens: Tensor, free: Sequence[int], most: int, allowed: Tensor | None = None) -> Known:
        words = torch.arange(2, VOCABULARY) if allowed is None else allowed
        clean = float(self.loss(tokens[None])[0])
        return Known(tokens, free, words, self.vectors, most, clean, model=self)


def text(seed: int, words: int = 7) -> Tensor:
    return torch.randint(2, VOCABULARY, (words,), generator=torch.Generator().manual_seed(seed))


def brute_force(model: Bag, tokens: Tensor, free: Sequence[int]) -> tuple[float, Tensor]:
    """The best of all texts with one swap."""
    swaps = [tokens.clone() for _ in product(free, range(2, VOCABULARY))]
    for swapped, (place, word) in zip(swaps, product(free, range(2, VOCABULARY)), strict=True):
        swapped[place] = word
    losses = model.loss(torch.stack(swaps))
    return float(losses.max()), swaps[int(losses.argmax())]


def test_on_a_linear_bag_one_candidate_is_the_best_of_all_swaps() -> None:
    for seed in range(10):
        model, tokens = Bag(seed, linear=True), text(seed)
        found = hotflip(model.victim(tokens, (1, 3, 4), 1), steps=1, candidates=1, beam=1)
        assert torch.equal(found.tokens, brute_force(model, tokens, (1, 3, 4))[1])
        assert (found.queries, found.gradients) == (1, 1)


def test_greedy_hotflip_on_a_linear_bag_finds_the_best_swaps_of_several_words() -> None:
    model, tokens = Bag(3, linear=True), text(3, words=4)
    found = hotflip(model.victim(tokens, (0, 1, 3), 2, torch.arange(2, 9)), steps=5, candidates=1, beam=1)
    every = [
        torch.tensor([a, b, int(tokens[2]), d])
        for a, b, d in product(*[[int(tokens[place]), *range(2, 9)] for place in (0, 1, 3)])
    ]
    within = torch.stack([one for one in every if int((one != tokens).sum()) <= 2])
    assert float(model.loss(found.tokens[None])) == float(model.loss(within).max())


def test_the_estimate_is_the_slope_times_the_difference_of_vectors() -> None:
    model, tokens = Bag(1, linear=False), text(1)
    victim = model.victim(tokens, range(7), 1)
    slope = model.gradient(tokens[None])[0]
    rows = victim.best_swaps(tokens, slope, [2, 5], VOCABULARY)
    assert [len(row) for row in rows] == [VOCABULARY - 3] * 2  # neither special words nor the word itself
    for swap in rows[0] + rows[1]:
        wanted = (model.vectors[swap.word] - model.vectors[tokens[swap.place]]) @ slope[swap.place]
        assert abs(swap.estimate - float(wanted)) < 1e-5
    assert all(row == sorted(row, key=lambda swap: -swap.estimate) for row in rows)


def test_gcg_with_all_candidates_of_one_position_is_brute_force() -> None:
    for seed in range(10):
        model, tokens = Bag(seed, linear=False), text(seed)
        victim = model.victim(tokens, (2,), 1)
        highest, best = brute_force(model, tokens, (2,))
        found = gcg(victim, DRAWS, steps=1, candidates=VOCABULARY, tried=VOCABULARY)
        assert torch.equal(found.tokens, best if highest > victim.loss else tokens)


def test_the_best_of_gcg_never_gets_worse_with_more_steps() -> None:
    model, tokens = Bag(5, linear=False), text(5)
    victim = model.victim(tokens, range(7), 3)
    losses = [
        float(model.loss(gcg(victim, Draws(0, "gcg", "a"), steps, 8, 4).tokens[None]))
        for steps in range(1, 12)
    ]
    assert losses == sorted(losses)
    assert victim.loss <= losses[0] < losses[-1]


def plain_gcg(victim: Known, draws: Draws, steps: int, k: int, tried: int) -> Tensor:
    """Algorithm 1 as plain loops, for the free positions and with a limit of changed words."""
    text, best, highest = victim.tokens, victim.tokens, victim.loss
    for _ in range(steps):
        slope = victim.model.gradient(text[None])[0]
        changed = [place for place in range(len(text)) if text[place] != victim.tokens[place]]
        places = changed if len(changed) >= victim.most else list(victim.free)
        tops = []
        for place in places:
            scores = {
                word: float(((victim.vectors[word] - victim.vectors[text[place]]) * slope[place]).sum())
                for word in victim.allowed.tolist()
                if word != text[place]
            }
            tops.append(sorted(scores, key=lambda word: -scores[word])[:k])
        results = []
        for _ in range(tried):
            where = draws.below(len(places))
            candidate = text.clone()
            candidate[places[where]] = tops[where][draws.below(len(tops[where]))]
            results.append((victim.model.ask(candidate[None])[0].loss, candidate))
        loss, text = max(results, key=lambda result: result[0])
        if loss > highest:
            best, highest = text, loss
    return best


def test_gcg_equals_plain_loops() -> None:
    for seed in range(5):
        model, tokens = Bag(seed, linear=False), text(seed, words=9)
        victim = model.victim(tokens, (0, 1, 4, 6, 8), 3)
        found = gcg(victim, Draws(0, "gcg", seed), steps=6, candidates=6, tried=5)
        assert torch.equal(found.tokens, plain_gcg(victim, Draws(0, "gcg", seed), 6, 6, 5))


def test_both_keep_to_the_free_places_the_allowed_words_and_the_limit() -> None:
    allowed = torch.tensor([4, 9, 11, 20])
    for seed in range(5):
        model, tokens = Bag(seed, linear=False), text(seed)
        victim = model.victim(tokens, (0, 2, 5, 6), 2, allowed)
        hotflip(victim, steps=5, candidates=5, beam=2)
        gcg(victim, DRAWS, steps=8, candidates=4, tried=6)
        for asked in model.asked:
            changed = (asked != tokens).nonzero()[:, 0].tolist()
            assert len(changed) <= 2
            assert set(changed) <= {0, 2, 5, 6}
            assert set(asked[changed].tolist()) <= set(allowed.tolist())


def cosine(model: Bag, first: int, second: int) -> float:
    one, other = model.vectors[first], model.vectors[second]
    return float(one @ other / (one.norm() * other.norm()))


def assert_best_swap(model: Bag, tokens: Tensor, found: Tensor, highest: float) -> None:
    """A bag does not see order: two swaps may have one loss up to rounding, and either is the best."""
    assert abs(float(model.loss(found[None])) - highest) <= 1e-12 * abs(highest)
    changed = (found != tokens).nonzero()[:, 0].tolist()
    assert len(changed) <= 1
    assert set(changed) <= {1, 4}
    assert all(cosine(model, int(tokens[place]), int(found[place])) >= 0.3 - 1e-12 for place in changed)


def test_with_a_cosine_the_best_swap_is_that_of_all_which_keep_to_it() -> None:
    """The limit leaves out the best swap of all in most texts, and the rest is brute force."""
    others = 0
    for seed in range(20):
        model, tokens = Bag(seed, linear=False), text(seed)
        victim = replace(model.victim(tokens, (1, 4), 1), min_cosine=0.3)
        best, highest = tokens, victim.loss
        for place, word in product((1, 4), range(2, VOCABULARY)):
            changed = tokens.clone()
            changed[place] = word
            loss = float(model.loss(changed[None]))
            if loss > highest and cosine(model, int(tokens[place]), word) >= 0.3:
                best, highest = changed, loss
        for found in (
            hotflip(victim, steps=1, candidates=1000, beam=1),
            gcg(victim, DRAWS, steps=1, candidates=1000, tried=1000),
        ):
            assert_best_swap(model, tokens, found.tokens, highest)
        others += not torch.equal(best, brute_force(model, tokens, (1, 4))[1])
    assert others >= 10


def test_every_text_keeps_to_the_cosine_with_the_words_as_they_were() -> None:
    """A word swapped twice, too; without free words none is put to the model."""
    for seed in range(5):
        model, tokens = Bag(seed, linear=False), text(seed)
        victim = replace(model.victim(tokens, range(7), 3), min_cosine=0.2)
        hotflip(victim, steps=5, candidates=8, beam=2)
        gcg(victim, DRAWS, steps=30, candidates=4, tried=6)
        swapped = 0
        for asked in model.asked:
            for place in (asked != tokens).nonzero()[:, 0].tolist():
                assert cosine(model, int(tokens[place]), int(asked[place])) >= 0.2 - 1e-12
                swapped += 1
        assert swapped > 0
        model.asked.clear()
        free = replace(victim, min_cosine=None), replace(victim, min_cosine=-1.0)
        same = [gcg(one, Draws(0, "gcg", seed), 6, 4, 6).tokens for one in free]
        assert torch.equal(*same)
        model.asked.clear()
        assert torch.equal(hotflip(replace(victim, min_cosine=1.0), 3, 8, 2).tokens, tokens)
        assert model.asked == []


def test_queries_are_the_texts_put_to_the_model() -> None:
    model, tokens = Bag(2, linear=False), text(2)
    victim = model.victim(tokens, range(7), 3)
    found = [hotflip(victim, 3, 5, 2)]
    assert found[0].queries == len(model.asked)
    assert found[0].gradients == 1 + 2 + 2
    model.asked.clear()
    assert gcg(victim, DRAWS, 4, 3, 6).queries == len(model.asked)


def test_without_a_free_word_the_text_stays() -> None:
    model, tokens = Bag(2, linear=False), text(2)
    for found in (
        hotflip(model.victim(tokens, (), 1), 3, 5, 2),
        gcg(model.victim(tokens, (), 1), DRAWS, 4, 3, 6),
    ):
        assert isinstance(found, Found)
        assert torch.equal(found.tokens, tokens)
        assert found.queries == 0


def test_guided_swaps_are_no_weaker_than_random_ones_with_the_same_queries() -> None:
    gained, by_chance = 0.0, 0.0
    for seed in range(20):
        model, tokens = Bag(seed, linear=False), text(seed)
        victim = model.victim(tokens, range(7), 2)
        found = gcg(victim, Draws(0, "gcg", seed), steps=4, candidates=4, tried=5)
        gained += float(model.loss(found.tokens[None])) - victim.loss
        made, best = torch.Generator().manual_seed(seed), victim.loss
        for _ in range(found.queries + found.gradients):
            other = tokens.clone()
            other[torch.randperm(7, generator=made)[:2]] = torch.randint(2, VOCABULARY, (2,), generator=made)
            best = max(best, float(model.loss(other[None])))
        by_chance += best - victim.loss
    assert gained > by_chance
