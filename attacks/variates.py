"""Uniform and normal numbers, and integers, made of random words; the same bits on every device.

All steps are integer operators, or float32 operators with exact results.

A uniform number is (k + 1/2) / 2^23 with k the upper 23 bits of half a word: symmetric, never 0 or 1.

Four normal numbers are the product of the 4 x 4 Hadamard matrix with four entries of a table, each chosen by
a quarter of a word: half the means of the 65,536 equally likely intervals of the normal law, rounded to
multiples of 2^-20, so that sums are exact in float32. The distribution function differs from the normal one
by at most 1.2e-7, the variance from 1 by 1.5e-6; tails are too light by 0.16 % at 4 standard deviations,
1.4 % at 5 and 8 % at 6, and end at 8.8.

R = rows, W = words of each, n = numbers of each row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Literal

import torch
from torch import Tensor

from assay.attacks.sending import sent

Law = Literal["words", "uniform", "normal"]
PER_WORD: Mapping[Law, int] = {"words": 2, "uniform": 2, "normal": 4}
TABLE_BITS = 16
GRID = 2.0**20
# So many normal numbers, or the rest, are made together.
BLOCK = 2**18


def words_for(law: Law, count: int) -> int:
    """How many 64-bit words n numbers of a law take; one for none."""
    return max(1, -(-count // PER_WORD[law]))


def halves(words: Tensor, count: int) -> Tensor:
    """The first n halves of words (R, W), int32 (R, n): the same memory."""
    made = words.view(torch.int32)
    return made if made.shape[1] == count else made[:, :count]


def uniform(words: Tensor, out: Tensor) -> None:
    """Fills `out`, float32 (R, n), with uniform numbers; changes the words, int64 (R, W)."""
    odd = halves(words, out.shape[1]).bitwise_right_shift_(8).bitwise_or_(1)
    torch.mul(odd, 2.0**-24, out=out).add_(0.5)


def normal(words: Tensor, out: Tensor) -> None:
    """Fills `out`, float32 (R, n), with standard normal numbers from words, int64 (R, W)."""
    table = normal_table(out.device)
    for start in range(0, out.shape[1], BLOCK):
        part = out[:, start : start + BLOCK]
        count = part.shape[1]
        own = words[:, start // 4 : start // 4 + -(-count // 4)]
        index = own.view(torch.int16).to(torch.int32).bitwise_and_(2**TABLE_BITS - 1)
        entries = table.index_select(0, index.flatten()).view(len(out), 2, 2, -1)
        one, other = entries.unbind(2)  # (R, 2, n / 4)
        sums, differences = one + other, one - other
        whole = count % 4 == 0
        made = part.unflatten(1, (4, -1)) if whole else torch.empty_like(entries).flatten(1, 2)
        for place, pair in enumerate((sums, differences)):
            torch.add(pair[:, 0], pair[:, 1], out=made[:, 2 * place])
            torch.sub(pair[:, 0], pair[:, 1], out=made[:, 2 * place + 1])
        if not whole:
            part.copy_(made.flatten(1)[:, :count])


FILL: Mapping[Law, Callable[[Tensor, Tensor], None]] = {"uniform": uniform, "normal": normal}


def below(words: Tensor, bound: int | Tensor) -> Tensor:
    """Integers in [0, bound) from 32-bit words (R, n): floor(w bound / 2^32), int64; bound at most 2^31.

    Probabilities differ from 1 / bound by at most 2^-32. A tensor has a bound for each row, int64 (R, 1).
    """
    return words.to(torch.int64).bitwise_and_(2**32 - 1).mul_(bound).bitwise_right_shift_(32)


def order(words: Tensor) -> Tensor:
    """Orders of 0..n-1 by 32-bit words (R, n), ties by place; int64."""
    places = torch.arange(words.shape[1], device=words.device)
    keys = words.to(torch.int64).bitwise_left_shift_(32).add_(places)
    if keys.device.type == "cpu":
        keys.numpy().sort(axis=1)  # in a tenth of torch's time
    else:
        keys = keys.sort(dim=1).values
    return keys.bitwise_and_(2**32 - 1)


@functools.lru_cache(maxsize=16)
def normal_table(device: torch.device = torch.device("cpu")) -> Tensor:  # noqa: B008
    """Halves of the means of the equally likely intervals, in ascending order, float32 (65536,)."""
    count = 2**TABLE_BITS
    shares = torch.arange(count // 2, count + 1, dtype=torch.float64) / count
    edges = torch.special.ndtri(shares)  # 0 to infinity
    density = torch.exp(-edges.square() / 2) / math.sqrt(2 * math.pi)
    means = (density[:-1] - density[1:]) * count
    upper = ((means / 2 * GRID).round() / GRID).float()
    return sent(torch.cat([-upper.flip(0), upper]), device)
