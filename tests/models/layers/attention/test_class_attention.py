from __future__ import annotations

import functools

import pytest
import torch
from timm.models.xcit import ClassAttentionBlock as TimmBlock
from torch import nn

from assay.models.layers.attention.class_attention import ClassAttention, ClassAttentionBlock
from tests.support.weights import disturb


def block(dropout: float = 0.0) -> ClassAttentionBlock:
    made = ClassAttentionBlock(12, 3, mlp_ratio=4.0, dropout=dropout).double()
    disturb(made)
    return made


def test_equals_timms_block_with_its_weights_and_so_do_its_gradients() -> None:
    norm = functools.partial(nn.LayerNorm, eps=1e-6)
    theirs = TimmBlock(12, 3, qkv_bias=True, norm_layer=norm, tokens_norm=True).double()
    disturb(theirs)
    ours = block()
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(2, 7, 12, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=1e-12)
    factors = torch.randn(2, 7, 12, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((ours(x) * factors).sum(), x)
    (expected,) = torch.autograd.grad((theirs(x) * factors).sum(), x)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-11)


def test_patches_are_normalised_and_doubled_and_see_no_other_token() -> None:
    ours = block()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    expected = 2 * ours.norm2(x + ours.gamma1 * ours.norm1(x))
    torch.testing.assert_close(ours(x)[:, 1:], expected[:, 1:], rtol=0, atol=1e-12)


def test_the_class_token_does_not_depend_on_the_order_of_the_patches() -> None:
    ours = block()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    order = torch.tensor([0, 3, 6, 1, 5, 2, 4])
    torch.testing.assert_close(ours(x[:, order])[:, 0], ours(x)[:, 0], rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only() -> None:
    ours = block(dropout=0.5)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    assert not torch.equal(ours(x), ours(x))
    ours.eval()
    assert torch.equal(ours(x), ours(x))


def test_heads_must_divide_width() -> None:
    with pytest.raises(ValueError, match="heads must divide width: got width 10 and heads 3"):
        ClassAttention(10, 3)
