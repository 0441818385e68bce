"""Softmax attention against the formula in NumPy, and its gradient against finite differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.heads import attend
from tests.models.attention.conftest import Vector


def explicit(attention: SoftmaxAttention, x: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """proj(softmax(q k^T / sqrt(D)) v), with the N x N matrix written out."""
    weights = {name: value.detach().numpy() for name, value in attention.state_dict().items()}
    batch, _, width = x.shape
    heads, size = attention.heads, width // attention.heads
    projected = x @ weights["qkv.weight"].T + weights["qkv.bias"]  # (B, N, 3C): q, k, v
    output = np.zeros_like(x)
    for image in range(batch):
        for head in range(heads):
            columns = slice(head * size, (head + 1) * size)
            q, k, v = (
                projected[image, :, part * width : (part + 1) * width][:, columns] for part in range(3)
            )
            scores = q @ k.T / np.sqrt(size)
            if mask is not None:
                scores[:, ~mask[image]] = -np.inf
            matrix = np.exp(scores - scores.max(axis=1, keepdims=True))
            output[image, :, columns] = matrix / matrix.sum(axis=1, keepdims=True) @ v
    return output @ weights["proj.weight"].T + weights["proj.bias"]


@pytest.fixture
def attention() -> SoftmaxAttention:
    torch.manual_seed(0)
    return SoftmaxAttention(12, 3).double().eval()


def test_equals_the_formula(attention: SoftmaxAttention) -> None:
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    np.testing.assert_allclose(attention(x).detach(), explicit(attention, x.numpy()), atol=1e-12)


def test_masked_keys_get_no_weight(attention: SoftmaxAttention) -> None:
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    mask = torch.tensor([[True] * 5 + [False] * 2, [True] * 7])
    expected = explicit(attention, x.numpy(), mask.numpy())
    np.testing.assert_allclose(attention(x, mask=mask).detach(), expected, atol=1e-12)
    assert not np.allclose(attention(x).detach()[0], expected[0])


def test_masks_as_long_range_arena_does(vector: Callable[[str], Vector]) -> None:
    """Scores of padding are lowered by 1e9 there: the same weights of exactly 0."""
    stored = vector("softmax_lra")
    out = attend(stored["Q"], stored["K"], stored["V"], stored["mask"].bool(), 0.0)
    torch.testing.assert_close(out, stored["out64"], rtol=0, atol=1e-9)


def test_gradient_equals_finite_differences(attention: SoftmaxAttention) -> None:
    x = torch.randn(1, 5, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(attention, (x,))


def test_dropout_acts_in_training_only() -> None:
    attention = SoftmaxAttention(12, 3, dropout=0.5)
    x = torch.randn(2, 7, 12)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_heads_must_divide_width() -> None:
    with pytest.raises(ValueError, match="heads must divide width: got width 10 and heads 3"):
        SoftmaxAttention(10, 3)
