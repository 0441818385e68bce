"""Searches that swap words of a text, guided by the gradient of the loss by the words' vectors.

Ebrahimi et al. 2018, "HotFlip: White-Box Adversarial Examples for Text Classification",
equation 10 and section 3.3 (beam search);
Zou et al. 2023, "Universal and Transferable Adversarial Attacks on Aligned Language Models", algorithm 1.

A search ranks swaps by the first-order estimate of the change of the loss, and puts the best to the model.

N = tokens of the text, V = words of the vocabulary, C = width of the vectors, F = free positions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from assay.attacks.sending import sent
from assay.attacks.words.search.draws import Draws

# Positions whose swaps are estimated at a time: F x V numbers would not fit for long texts.
AT_A_TIME = 64


class Heard(NamedTuple):
    """The model's answer to one text: the loss that the attack raises, and whether it is wrong."""

    loss: float
    broken: bool


class Found(NamedTuple):
    """The text that counts, and what its search cost."""

    tokens: Tensor  # int64 (N,)
    queries: int  # texts put to the model, without the unchanged one
    gradients: int  # texts whose gradient was taken


class Slopes(NamedTuple):
    """Asks for the gradients of the loss by the vectors of texts, (B, N, C)."""

    texts: Tensor  # int64 (B, N)


class Queries(NamedTuple):
    """Asks for the model's answers to texts, B of `Heard`."""

    texts: Tensor  # int64 (B, N)


Question = Slopes | Queries
GuidedSearch = Generator[Question, Any, Found]
"""A search that waits for the answer to its question."""


@dataclass(frozen=True)
class Victim:
    """One text, and what its search knows of the model."""

    tokens: Tensor  # int64 (N,), on the CPU
    free: Sequence[int]  # positions whose word may change, ascending
    allowed: Tensor  # ids of the words that it may become, int64, ascending, on the device of `vectors`
    vectors: Tensor  # of all words, (V, C)
    most: int  # number of positions that may differ from `tokens`
    loss: float  # of the unchanged text
    # of the vectors of a word of `tokens` and of the word that it becomes, in [-1, 1]; None for no limit. A
    # vector of zeros has the cosine 0
    min_cosine: float | None = None

    def best_swaps(self, text: Tensor, gradient: Tensor, places: Sequence[int], k: int) -> list[list[Swap]]:
        """The k best swaps, best first, at places (N,), int64, by the gradient (N, C) at the text."""
        found: list[list[Swap]] = []
        words = self.vectors[self.allowed].float()  # (A, C)
        for start in range(0, len(places), AT_A_TIME):
            part = torch.tensor(places[start : start + AT_A_TIME])
            own, slopes = sent(text[part], words), gradient[sent(part, gradient)].float()
            change = slopes @ words.T - (slopes * self.vectors[own].float()).sum(1, keepdim=True)  # (F, A)
            change = change.masked_fill(self.allowed[None] == own[:, None], -torch.inf)
            if self.min_cosine is not None:
                first = self._directions[sent(self.tokens[part], words)]
                cosines = first @ self._directions[self.allowed].T  # (F, A)
                change = change.masked_fill(cosines < self.min_cosine, -torch.inf)
            values, columns = change.topk(min(k, len(self.allowed)), dim=1)
            # Together, so that the host waits once; ids are exact in float64.
            both = torch.stack([values.double(), self.allowed[columns].double()]).tolist()
            found += [
                [
                    Swap(value, place, int(word))
                    for value, word in zip(*pair, strict=True)
                    if value > -torch.inf
                ]
                for place, *pair in zip(part.tolist(), *both, strict=True)
            ]
        return found

    @cached_property
    def _directions(self) -> Tensor:
        """The vectors of all words at length 1, float64 (V, C)."""
        return normalize(self.vectors.double(), dim=1)


class Swap(NamedTuple):
    """One word's swap, with the first-order estimate of what it adds to the loss."""

    estimate: float
    place: int
    word: int

    def of(self, text: Tensor) -> Tensor:
        """The text with it."""
        changed = text.clone()
        changed[self.place] = self.word
        return changed


Search = Callable[[Victim, Draws], GuidedSearch]
"""Attacks one text; draws are the example's own."""


def hotflip(victim: Victim, steps: int, candidates: int, beam: int) -> GuidedSearch:
    """Beam search over swaps: every step changes one more word, `steps` and `victim.most` at most.

    For each text in the beam, the `candidates` swaps with the highest estimates are put to the model, and
    `beam` texts are kept, by their losses. The text is right before the attack.
    """
    kept, queries, gradients = [victim.tokens], 0, 0
    best, highest = victim.tokens, victim.loss
    for _ in range(min(steps, victim.most)):
        pool: dict[tuple[int, ...], Tensor] = {}
        slopes = yield Slopes(torch.stack(kept))
        gradients += len(kept)
        for text, slope in zip(kept, slopes, strict=True):
            places = [place for place in victim.free if text[place] == victim.tokens[place]]
            swaps = [swap for row in victim.best_swaps(text, slope, places, candidates) for swap in row]
            swaps.sort(key=lambda swap: (-swap.estimate, swap.place, swap.word))
            for changed in (swap.of(text) for swap in swaps[:candidates]):
                pool.setdefault(tuple(changed.tolist()), changed)
        if not pool:
            break
        texts = list(pool.values())
        heard = yield Queries(torch.stack(texts))
        queries += len(texts)
        order = sorted(range(len(texts)), key=lambda row: (not heard[row].broken, -heard[row].loss))
        first = order[0]
        if heard[first].broken:
            return Found(texts[first], queries, gradients)
        if heard[first].loss > highest:
            best, highest = texts[first], heard[first].loss
        kept = [texts[row] for row in order[:beam]]
    return Found(best, queries, gradients)


def gcg(victim: Victim, draws: Draws, steps: int, candidates: int, tried: int) -> GuidedSearch:
    """Greedy coordinate gradient: every step puts drawn swaps to the model, and goes to the best of them.

    Each of at most `steps` rounds draws `tried` swaps, or all where there are no more, from the `candidates`
    with the highest estimates at each position. A word may be swapped again; once `victim.most` words differ,
    only those may.
    """
    text, queries, gradients = victim.tokens, 0, 0
    best, highest = victim.tokens, victim.loss
    for _ in range(steps):
        different = set((text != victim.tokens).nonzero()[:, 0].tolist())
        places = [place for place in victim.free if len(different) < victim.most or place in different]
        (slope,) = yield Slopes(text[None])
        gradients += 1
        rows = [row for row in victim.best_swaps(text, slope, places, candidates) if row]
        swaps = _drawn(rows, draws, tried)
        if not swaps:
            break
        texts = [swap.of(text) for swap in swaps]
        heard = yield Queries(torch.stack(texts))
        queries += len(texts)
        first = min(range(len(texts)), key=lambda row: (not heard[row].broken, -heard[row].loss))
        text = texts[first]
        if heard[first].broken:
            return Found(text, queries, gradients)
        if heard[first].loss > highest:
            best, highest = text, heard[first].loss
    return Found(best, queries, gradients)


def _drawn(rows: Sequence[Sequence[Swap]], draws: Draws, tried: int) -> list[Swap]:
    if sum(map(len, rows)) <= tried:
        return [swap for row in rows for swap in row]
    chosen = (rows[draws.below(len(rows))] for _ in range(tried))
    return list(dict.fromkeys(row[draws.below(len(row))] for row in chosen))
