"""Cosine attention against its formula, written out for one head."""

from __future__ import annotations

import torch

from assay.models.attention.cosine import CosineAttention


def test_equals_the_formula() -> None:
    attention = CosineAttention(6, 1, scale=4.0).double()
    x = torch.randn(2, 5, 6, dtype=torch.float64)
    queries, keys, values = attention.qkv(x).chunk(3, dim=-1)
    cosines = torch.cosine_similarity(queries[:, :, None], keys[:, None], dim=-1)  # (B, N, N)
    expected = attention.proj(torch.softmax(4.0 * cosines, dim=-1) @ values)
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_the_length_of_a_query_does_not_matter() -> None:
    attention = CosineAttention(6, 2).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    before = attention(x)
    with torch.no_grad():
        attention.qkv.weight[:6] *= 3  # the rows of q
        attention.qkv.bias[:6] *= 3
    torch.testing.assert_close(attention(x), before, rtol=0, atol=1e-12)
