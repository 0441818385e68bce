"""Random word swap in running text at a given rate, for language models.

Each eligible word is swapped with probability `rate`, by its own draw, keyed by (seed, document id, position
in the document): independent of batch, window and shard. Words swapped at a lower rate are also swapped at a
higher one; the swapped fraction differs from the rate by chance (by 0.0004, one standard deviation, for 250
000 words at rate 0.05).

Eligible words have a letter or a digit. Markup (`<eos>`, `<unk>`, anything in angle brackets), punctuation
and the signs of WikiText (`=`, `@-@`) stay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assay.attacks.randomness import Randomness
from assay.attacks.words.search.draws import Stream
from assay.attacks.words.search.word_change import WordChange

NAME = "word_swap"
MARKUP = re.compile(r"<[^<>\s]*>")


@dataclass(frozen=True)
class Swapped:
    """Document after the swap."""

    words: list[str]  # same number as before
    swapped: Tensor  # mask of changed words, bool (n,)
    eligible: int  # number of eligible words


@dataclass(frozen=True)
class WordSwap:
    """Swaps words at a rate."""

    rate: float  # probability per eligible word, in [0, 1]
    change: WordChange  # a candidate is drawn uniformly
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate must be in [0, 1]: got {self.rate}")

    def __call__(self, words: Sequence[str], document: str) -> Swapped:
        """Swaps words of a document."""
        draws = self._draws(len(words), document)
        known: dict[str, bool] = {}
        free = torch.tensor([_may_be_swapped(word, known) for word in words], dtype=torch.bool)
        chosen = (free & (draws < self.rate)).nonzero().flatten().tolist()
        after, swapped = list(words), torch.zeros(len(words), dtype=torch.bool)
        stream, same = Stream(self.seed, NAME, document), _Same(self.change)
        for position in chosen:
            found = self._one(words[position], position, stream, same)
            if found is not None:
                after[position] = found
                swapped[position] = True
        return Swapped(after, swapped, int(free.sum()))

    def _draws(self, n: int, document: str) -> Tensor:
        """Uniform draw in [0, 1) per position, float64 (n,), independent of n."""
        return Randomness(self.seed, NAME).uniform([document], (n,), purpose="swap", dtype=torch.float64)[0]

    def _one(self, word: str, position: int, stream: Stream, same: _Same) -> str | None:
        if not self.change.chance:
            candidates = same.of(word)
            if len(candidates) < 2:
                return candidates[0] if candidates else None
            return stream.of("choice", position).one_of(candidates)
        candidates = self.change.of(word, stream.of(self.change.name, position))
        return stream.of("choice", position).one_of(candidates) if candidates else None


class _Same:
    """Cache of the candidates of a deterministic change."""

    def __init__(self, change: WordChange) -> None:
        self._change = change
        self._known: dict[str, list[str]] = {}
        self._nothing = Stream(0, NAME, "").of("none", 0)

    def of(self, word: str) -> list[str]:
        if word not in self._known:
            self._known[word] = self._change.of(word, self._nothing)
        return self._known[word]


def may_be_swapped(word: str) -> bool:
    """Whether a word is eligible: no markup, and with a letter or a digit."""
    return MARKUP.fullmatch(word) is None and any(map(str.isalnum, word))


def _may_be_swapped(word: str, known: dict[str, bool]) -> bool:
    found = known.get(word)
    if found is None:
        found = known[word] = may_be_swapped(word)
    return found
