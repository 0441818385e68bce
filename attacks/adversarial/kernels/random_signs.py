"""Random signs keyed by example and step: one bit each, until the device turns them into numbers.

A step of SPSA on one 224 x 224 image takes 19 million signs: as bits 50 times less work for the CPU than as
numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from assay.attacks.kernel import Setting

BITS = 32  # of a word


def random_signs(
    setting: Setting,
    rows: Tensor,
    steps: Tensor,
    count: int,
    entries: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Draws `count` vectors of random signs for each example, the first ones the same for any count.

    `rows` are the examples' places in `Setting.ids`, `steps` the steps that the signs are for, both on the
    CPU, (B,). The result are bits, on the device, uint8 (B, count, at least entries / 8), for `unpack`.
    """
    shape = (count, -(-entries // BITS))
    words = setting.randomness.words(
        setting.ids_of(rows), shape, step=steps.tolist(), purpose="directions", device=device
    )
    return words.view(torch.uint8)


def unpack(packed: Tensor, entries: int, dtype: torch.dtype) -> Tensor:
    """Turns bits (B, S, bytes) into signs, +1 or -1, (B, S, entries)."""
    numbers = torch.arange(256, device=packed.device)[:, None]
    bits = (numbers >> torch.arange(8, device=packed.device)) & 1
    table = (2 * bits - 1).to(dtype)  # (256, 8)
    signs = functional.embedding(packed[..., : -(-entries // 8)].int(), table)
    return signs.flatten(2)[..., :entries]
