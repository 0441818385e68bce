"""Walker's alias method: a draw from a small discrete distribution with one random word and two look-ups.

Walker 1977, "An Efficient Method for Generating Discrete Random Variables with General Distributions", with
the construction of Vose 1991. The high bits of a word choose a column, the low bits its own outcome or its
alias.

R = distributions (rows), K = columns, a power of two.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class AliasTable:
    """Tables for R distributions on the outcomes 0..K-1, on the device of what is drawn."""

    bits: int  # log2 K
    thresholds: Tensor  # (R K,) int32: below it the column's own outcome is drawn
    outcomes: Tensor  # (2 R K,) float32: each column's alias, then its own outcome

    def sample(self, rows: Tensor, words: Tensor) -> Tensor:
        """Draw one outcome per row number; rows and words are int32 of equal shape, the result is float32."""
        low = 32 - self.bits
        # The shift is an arithmetic one: the mask removes copies of the sign.
        column = (words >> low).bitwise_and_((1 << self.bits) - 1)
        entry = (rows << self.bits).add_(column).flatten()
        own = (words & ((1 << low) - 1)).flatten() < self.thresholds.index_select(0, entry)
        chosen = entry.mul_(2).add_(own)
        return self.outcomes.index_select(0, chosen).view(words.shape)


def alias_table(probabilities: Tensor, values: Tensor) -> AliasTable:
    """The tables of probabilities, float64 (R, k), rows of sum 1, k >= 2; `values` (k,) are the outcomes."""
    outcomes = probabilities.shape[1]
    bits = max(1, (outcomes - 1).bit_length())
    columns = 2**bits
    labels = [*values.tolist(), *[0.0] * (columns - outcomes)]
    thresholds: list[int] = []
    pairs: list[float] = []
    for row in probabilities.tolist():
        own, aliases = _pair([*(columns * share for share in row), *[0.0] * (columns - outcomes)])
        for label, share, other in zip(labels, own, aliases, strict=True):
            thresholds.append(min(round(share * 2 ** (32 - bits)), 2**31 - 1))
            pairs += [labels[other], label]
    return AliasTable(bits, torch.tensor(thresholds, dtype=torch.int32), torch.tensor(pairs))


def _pair(shares: list[float]) -> tuple[list[float], list[int]]:
    """Split weights of mean 1 so that each column holds the rest of an outcome and at most one other."""
    shares = list(shares)
    aliases = list(range(len(shares)))
    small = [index for index, share in enumerate(shares) if share < 1]
    large = [index for index, share in enumerate(shares) if share >= 1]
    own = [1.0] * len(shares)
    while small and large:
        index, giver = small.pop(), large[-1]
        own[index], aliases[index] = shares[index], giver
        shares[giver] -= 1 - shares[index]
        if shares[giver] < 1:
            small.append(large.pop())
    return own, aliases
