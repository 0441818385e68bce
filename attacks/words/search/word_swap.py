"""Words of running text swapped at a rate, for language models.

Each word that may be swapped is swapped with probability `rate`, by a draw of its own that is keyed by (seed,
document id, position in the document). So a swap depends on no batch, window or shard, the words swapped at a
lower rate are among those swapped at a higher one, and the share that is swapped differs from the rate by
chance (by 0.0004, one standard deviation, for 250 000 words at rate 0.05).

What may be swapped is a word of the text: it has a letter or a digit. Markup (`<eos>`, `<unk>`, anything in
angle brackets), punctuation and the signs of WikiText (`=`, `@-@`) stay.
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
    """A document after the swap.

    Attributes:
        words: as many as before.
        swapped: which of them are others than before, bool (n,).
        eligible: how many could have been swapped.
    """

    words: list[str]
    swapped: Tensor
    eligible: int


@dataclass(frozen=True)
class WordSwap:
    """Swaps words at a rate.

    Attributes:
        rate: probability of each word that may be swapped, in [0, 1].
        change: what a word becomes: one of its candidates, each as likely as the others.
        seed: the job's seed.

    Raises:
        ValueError: the rate is outside [0, 1].
    """

    rate: float
    change: WordChange
    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"rate must be in [0, 1]: got {self.rate}")

    def __call__(self, words: Sequence[str], document: str) -> Swapped:
        """Swap words of one document.

        Args:
            words: its words.
            document: its id, which the draws are keyed by.
        """
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
        """A number in [0, 1) for each position, float64 (n,); that of a position does not depend on n."""
        (generator,) = Randomness(self.seed, NAME).generators([document], purpose="swap")
        return torch.rand(n, generator=generator, dtype=torch.float64)

    def _one(self, word: str, position: int, stream: Stream, same: _Same) -> str | None:
        """What a word becomes; None where there is nothing."""
        if not self.change.chance:
            candidates = same.of(word)
            if len(candidates) < 2:
                return candidates[0] if candidates else None
            return stream.of("choice", position).one_of(candidates)
        candidates = self.change.of(word, stream.of(self.change.name, position))
        return stream.of("choice", position).one_of(candidates) if candidates else None


class _Same:
    """The candidates of words whose change knows no chance, each asked for once."""

    def __init__(self, change: WordChange) -> None:
        self._change = change
        self._known: dict[str, list[str]] = {}
        self._nothing = Stream(0, NAME, "").of("none", 0)

    def of(self, word: str) -> list[str]:
        if word not in self._known:
            self._known[word] = self._change.of(word, self._nothing)
        return self._known[word]


def may_be_swapped(word: str) -> bool:
    """Whether a word is one of the text: no markup, and with a letter or a digit."""
    return MARKUP.fullmatch(word) is None and any(map(str.isalnum, word))


def _may_be_swapped(word: str, known: dict[str, bool]) -> bool:
    found = known.get(word)
    if found is None:
        found = known[word] = may_be_swapped(word)
    return found
