"""Philox 4x64-10: a counter-based generator, whose words are a function of a key and a place alone.

Salmon, Moraes, Dror and Shaw 2011, "Parallel Random Numbers: As Easy as 1, 2, 3", section 3.3. A block of
four 64-bit words comes from a key of two words and a counter of four, in ten rounds. Block j of a stream,
from 0 on, has the counter j + 1, as in NumPy; its `Philox` makes the words on the CPU; elsewhere
`on_device` makes the same words of all keys at once, with exact integer operators.

Words are signed int64 with the bits of the unsigned words. Keys are (R, 2); W = words of each.
"""

from __future__ import annotations

import functools
import threading

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from assay.attacks.sending import sent

Keys = NDArray[np.uint64]

ROUNDS = 10
WORDS = 4  # of a block
MULTIPLIERS = (0xD2E7470EE14C6C93, 0xCA5A826395121157)
# What a round adds to the words of the key.
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
LOW = 0xFFFFFFFF
START = np.zeros(WORDS, dtype=np.uint64)
# Blocks made at once on a device, with 200 MB of temporaries.
BLOCKS_AT_ONCE = 2**20


class _Own(threading.local):
    """This thread's generator: a new one costs 20 times as much as a new state."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(key=0)


_own = _Own()


def on_cpu(keys: Keys, count: int) -> Tensor:
    """The first words of each key's stream, (R, W), on the CPU."""
    rows = [_row(key, count) for key in keys]
    made = rows[0][None] if len(rows) == 1 else np.stack(rows)
    return torch.from_numpy(made.view(np.int64))


def _row(key: Keys, count: int) -> NDArray[np.uint64]:
    philox = _own.philox
    philox.state = {
        "bit_generator": "Philox",
        "state": {"counter": START, "key": key},
        "buffer": START,
        "buffer_pos": WORDS,
        "has_uint32": 0,
        "uinteger": 0,
    }
    return philox.random_raw(count)


def on_device(keys: Keys, count: int, device: torch.device) -> Tensor:
    """The first words of each key's stream, (R, W), made on a device."""
    blocks = -(-count // WORDS)
    made = torch.empty(len(keys), blocks, WORDS, dtype=torch.int64, device=device)
    rounds = sent(round_keys(keys), device)  # (10, 2, R)
    rows = max(1, BLOCKS_AT_ONCE // max(blocks, 1))
    for first in range(0, len(keys), rows):
        part = slice(first, first + rows)
        for start in range(0, blocks, BLOCKS_AT_ONCE):
            end = min(start + BLOCKS_AT_ONCE, blocks)
            counter = torch.arange(start + 1, end + 1, device=device).expand(len(made[part]), -1)
            nothing = torch.zeros_like(counter)
            four = permuted((counter, nothing, nothing, nothing), rounds[:, :, part])
            for place, words in enumerate(four):
                made[part, start:end, place] = words
    return made.flatten(1)[:, :count]


def round_keys(keys: Keys) -> Tensor:
    """The two words that each round takes of each key, int64 (10, 2, R)."""
    step = np.arange(ROUNDS, dtype=np.uint64)[:, None, None]
    return torch.from_numpy((keys.T + step * np.array(WEYL, dtype=np.uint64)[:, None]).view(np.int64))


def permuted(counters: tuple[Tensor, Tensor, Tensor, Tensor], rounds: Tensor) -> tuple[Tensor, ...]:
    """The four words of the blocks with these counters, (R, B) each, under the keys of `round_keys`."""
    even, odd = torch.stack(counters[::2]), torch.stack(counters[1::2])  # (2, R, B)
    whole, low, high = _multipliers(even.device)  # (2, 1, 1)
    for words in rounds.unbind(0):
        product = _high_product(even, low, high)
        # The upper half of the product of the third word goes to the first word, and the other way round.
        odd = product.flip(0).bitwise_xor_(odd).bitwise_xor_(words[:, :, None])
        even, odd = odd, even.mul_(whole).flip(0)
    return even[0], odd[0], even[1], odd[1]


def _high_product(words: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Upper words of the products with multipliers in halves; each sum below stays below 2^64."""
    lower, upper = words & LOW, _upper_half(words >> 32)
    first = _upper_half((lower * low) >> 32).add_(upper * low)
    carried = lower.mul_(high).add_(first & LOW)
    return upper.mul_(high).add_(_upper_half(first >> 32)).add_(_upper_half(carried >> 32))


def _upper_half(shifted: Tensor) -> Tensor:
    return shifted.bitwise_and_(LOW)


@functools.lru_cache(maxsize=16)
def _multipliers(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The two multipliers, (2, 1, 1): whole, lower halves, upper halves."""
    whole = torch.from_numpy(np.array(MULTIPLIERS, dtype=np.uint64).view(np.int64))[:, None, None]
    return sent(whole, device), sent(whole & LOW, device), sent((whole >> 32) & LOW, device)
