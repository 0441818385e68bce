from __future__ import annotations

import torch

from models.attention.heads import merge_heads, split_heads


def test_split_is_parts_first_then_head_major() -> None:
    projected = torch.arange(2 * 3 * 12).reshape(2, 3, 12)  # two parts of width 6, two heads of width 3
    keys, values = split_heads(projected, 2, 2)
    assert keys.shape == values.shape == (2, 2, 3, 3)
    assert torch.equal(keys[1, 0], projected[1, :, 0:3])
    assert torch.equal(values[0, 1], projected[0, :, 9:12])


def test_merge_undoes_split() -> None:
    projected = torch.randn(2, 3, 12)
    keys, values = split_heads(projected, 2, 2)
    assert torch.equal(torch.cat([merge_heads(keys), merge_heads(values)], dim=-1), projected)
