"""Scaled Attention with alpha A_sym, against its formula."""

from __future__ import annotations

import torch

from assay.models.attention.scaled_alpha import AlphaScaledAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.heads import merge_heads, split_heads
from assay.models.vit import vit


def build(alpha: float, dropout: float = 0.0) -> AlphaScaledAttention:
    torch.manual_seed(1)
    attention = AlphaScaledAttention(12, 3, dropout=dropout).double()
    torch.nn.init.constant_(attention.alpha, alpha)
    return attention


def test_equals_the_formula() -> None:
    attention = build(0.7)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    queries, keys, values = split_heads(attention.qkv(x), 3, 3)
    matrix = torch.softmax(queries @ keys.transpose(-1, -2) / 2.0, dim=-1)
    symmetric = torch.softmax(keys @ keys.transpose(-1, -2) / 2.0, dim=-1)
    expected = attention.proj(merge_heads(matrix @ (values - 0.7 * symmetric @ values)))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_starts_as_softmax_attention_and_learns_alpha() -> None:
    attention, softmax = AlphaScaledAttention(12, 3).double(), SoftmaxAttention(12, 3).double()
    assert attention.load_state_dict(softmax.state_dict(), strict=False).missing_keys == ["alpha"]
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(attention(x), softmax(x), rtol=0, atol=1e-13)
    (gradient,) = torch.autograd.grad(attention(x).square().sum(), attention.alpha)
    assert gradient.abs() > 0


def test_padding_is_not_subtracted() -> None:
    attention = build(0.7)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    mask = (torch.arange(7) < 4).expand(2, -1)
    torch.testing.assert_close(attention(x, mask=mask)[:, :4], attention(x[:, :4]), rtol=0, atol=1e-12)


def test_dropout_acts_in_training_only() -> None:
    attention = build(0.7, dropout=0.5)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    assert not torch.equal(attention(x), attention(x))
    attention.eval()
    assert torch.equal(attention(x), attention(x))


def test_gradient_equals_finite_differences() -> None:
    x = torch.randn(1, 5, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(build(0.7), (x,))


def test_adds_one_number_to_a_layer() -> None:
    with torch.device("meta"):
        model = vit(1000, 3, attention=AlphaScaledAttention)
    assert sum(parameter.numel() for parameter in model.parameters()) == 5_717_416 + 12
