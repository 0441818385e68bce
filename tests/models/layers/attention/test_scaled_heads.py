"""Pooling of tokens, factors of heads, and heads at several resolutions."""

from __future__ import annotations

import torch

from assay.models.layers.attention.scaled_heads import factors_of, pool_tokens


def test_windows_are_averaged_over_the_tokens_that_they_have() -> None:
    x = torch.arange(8.0)[None, :, None]
    pooled, mask = pool_tokens(x, 3, 1)
    assert pooled.flatten().tolist() == [0.0, 2.0, 5.0, 7.0]
    assert mask is None
    present = torch.tensor([[True, True, False, True, False, False, False, True]])
    pooled, mask = pool_tokens(x, 3, 1, present)
    assert pooled.flatten().tolist() == [0.0, 2.0, 0.0, 7.0]
    assert mask is not None
    assert mask.tolist() == [[True, True, False, True]]


def test_pooling_averages_small_types_in_float32() -> None:
    x = torch.full((1, 300, 1), 1.01, dtype=torch.bfloat16)
    pooled, _ = pool_tokens(x, 300, 0)
    assert pooled.dtype == torch.bfloat16
    assert pooled.item() == x[0, 0].item()


def test_factors_of_the_paper_and_of_other_numbers_of_heads() -> None:
    assert factors_of(None, 2) == (1, 2)
    assert factors_of(None, 4) == (1, 1, 2, 4)
    assert factors_of(None, 8) == (1, 1, 2, 2, 4, 4, 8, 8)
    assert factors_of(None, 1) == (1,)
    assert factors_of(None, 3) == (1, 1, 2)
    assert factors_of(None, 12) == (1, 1, 2, 2, 4, 4, 8, 8, 8, 8, 8, 8)
    assert factors_of([1, 2], 6) == (1, 2, 1, 2, 1, 2)
