"""Symmetric attention against the authors' module, and its identity with softmax attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.attention.symmetric import SymmetricAttention

NAMES = ("sym_softmax_s", "sym_softmax_m", "sym_softmax_l")


@pytest.mark.parametrize("name", NAMES)
def test_output_equals_the_authors_module(name: str, vector: Callable[[str], Any]) -> None:
    stored = vector(name)
    attention = stored.load(SymmetricAttention(12, 3))
    torch.testing.assert_close(attention(stored["x"]), stored["out64"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_the_authors_module(name: str, vector: Callable[[str], Any]) -> None:
    stored = vector(name)
    attention = stored.load(SymmetricAttention(12, 3))
    x = stored["x"].requires_grad_()
    (gradient,) = torch.autograd.grad((attention(x) * stored["R"]).sum(), x)
    expected = stored["grad_x64"]
    assert (gradient - expected).abs().max() <= 1e-9 * expected.abs().max()


def test_is_softmax_attention_with_the_keys_as_queries() -> None:
    torch.manual_seed(0)
    symmetric, softmax = SymmetricAttention(12, 3).double(), SoftmaxAttention(12, 3).double()
    weights = symmetric.state_dict()
    for part in ("qkv.weight", "qkv.bias"):
        keys, values = weights[part].chunk(2)
        weights[part] = torch.cat([keys, keys, values])
    softmax.load_state_dict(weights)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    mask = torch.tensor([[True] * 4 + [False] * 3, [True] * 7])
    torch.testing.assert_close(symmetric(x, mask=mask), softmax(x, mask=mask), rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only() -> None:
    attention = SymmetricAttention(12, 3, dropout=0.5)
    x = torch.randn(2, 7, 12)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_heads_must_divide_width() -> None:
    with pytest.raises(ValueError, match="heads must divide width"):
        SymmetricAttention(10, 3)
