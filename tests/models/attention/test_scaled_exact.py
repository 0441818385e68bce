"""Exact Scaled Attention: its S written out, the form of appendix E.1, and what S does as a projector."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.attention.scaled_exact import ExactScaledAttention, log_normalizers, scaled_mean
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.heads import merge_heads, split_heads


def build(**parameters: Any) -> ExactScaledAttention:
    torch.manual_seed(1)
    return ExactScaledAttention(12, 3, **parameters).double().eval()


def tokens(scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return scale * torch.randn(2, 7, 12, generator=generator, dtype=torch.float64)


def scaling(keys: Tensor) -> Tensor:
    """S(j, j') = g(k_j') / (N g(k_j)), (..., N, N), from its definition."""
    g = (keys @ keys.transpose(-1, -2) / keys.shape[-1] ** 0.5).exp().sum(dim=-1)
    return g[..., None, :] / (keys.shape[-2] * g[..., :, None])


def test_equals_the_formula() -> None:
    attention, x = build(), tokens(2.0)
    queries, keys, values = split_heads(attention.qkv(x).detach(), 3, 3)
    matrix = torch.softmax(queries @ keys.transpose(-1, -2) / 2.0, dim=-1)
    expected = matrix @ (torch.eye(7, dtype=torch.float64) - scaling(keys)) @ values
    torch.testing.assert_close(attention(x), attention.proj(merge_heads(expected)), rtol=0, atol=1e-11)


def test_s_is_symmetric_attention_over_its_transpose() -> None:
    keys = torch.randn(2, 3, 7, 4, dtype=torch.float64)
    symmetric = torch.softmax(keys @ keys.transpose(-1, -2) / 2.0, dim=-1)
    torch.testing.assert_close(symmetric / symmetric.transpose(-1, -2) / 7, scaling(keys), rtol=1e-12, atol=0)
    identity = torch.eye(7, dtype=torch.float64).expand(2, 3, 7, 7)
    columns = scaled_mean(identity, log_normalizers(keys), 30.0)
    torch.testing.assert_close(columns, scaling(keys), rtol=1e-12, atol=0)


def test_s_projects_so_taking_it_twice_changes_nothing_more() -> None:
    keys, values = torch.randn(2, 2, 3, 7, 4, dtype=torch.float64)
    log_g = log_normalizers(keys)
    once = values - scaled_mean(values, log_g, 30.0)
    torch.testing.assert_close(once - scaled_mean(once, log_g, 30.0), once, rtol=0, atol=1e-12)
    weighted = (log_g.exp() * once).sum(dim=-2)
    torch.testing.assert_close(weighted, torch.zeros_like(weighted), rtol=0, atol=1e-10)


def test_values_are_those_of_the_derivation() -> None:
    # v_j = a_j / g(k_j) becomes (a_j - mean a) / g(k_j).
    keys, coefficients = torch.randn(2, 2, 3, 7, 4, dtype=torch.float64)
    log_g = log_normalizers(keys)
    values = coefficients / log_g.exp()
    centred = (coefficients - coefficients.mean(dim=-2, keepdim=True)) / log_g.exp()
    torch.testing.assert_close(values - scaled_mean(values, log_g, 30.0), centred, rtol=0, atol=1e-13)


def test_equal_keys_make_it_softmax_attention_of_centred_values() -> None:
    attention, softmax = build(), SoftmaxAttention(12, 3).double()
    with torch.no_grad():
        attention.qkv.weight[12:24].zero_()
    softmax.load_state_dict(attention.state_dict())
    x = tokens()
    _, _, values = split_heads(attention.qkv(x), 3, 3)
    mean = merge_heads(values.mean(dim=-2, keepdim=True)) @ attention.proj.weight.T
    torch.testing.assert_close(attention(x), softmax(x) - mean, rtol=0, atol=1e-12)


def test_the_range_bounds_the_ratio_and_nothing_else() -> None:
    attention, narrow = build(), build(log_range=2.0)
    narrow.load_state_dict(attention.state_dict())
    keys = split_heads(attention.qkv(tokens()), 3, 3)[1]
    log_g = log_normalizers(keys)
    assert (log_g.amax(dim=-2) - log_g.amin(dim=-2)).max() < 2.0
    torch.testing.assert_close(narrow(tokens()), attention(tokens()), rtol=0, atol=1e-12)
    identity = torch.eye(7, dtype=torch.float64).expand(2, 3, 7, 7)
    ratios = 7 * scaled_mean(identity, 100 * log_g, 2.0)
    torch.testing.assert_close(ratios.max().log().item(), 2.0)
    assert not torch.allclose(narrow(tokens(4.0)), attention(tokens(4.0)), atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_large_keys_stay_finite(dtype: torch.dtype) -> None:
    attention = build().to(dtype)
    x = tokens(100.0).to(dtype).requires_grad_()
    output = attention(x)
    (gradient,) = torch.autograd.grad(output.sum(), x)
    assert torch.isfinite(output).all()
    assert torch.isfinite(gradient).all()


def test_padding_counts_neither_in_g_nor_in_the_mean() -> None:
    attention, x = build(), tokens(2.0)
    padded = torch.cat([x, 50 * torch.randn(2, 4, 12, dtype=torch.float64)], dim=1).requires_grad_()
    mask = (torch.arange(11) < 7).expand(2, -1)
    output = attention(padded, mask=mask)[:, :7]
    torch.testing.assert_close(output, attention(x), rtol=0, atol=1e-10)
    (gradient,) = torch.autograd.grad(output.square().sum(), padded)
    assert torch.isfinite(gradient).all()
    assert gradient[:, 7:].abs().max() == 0


def test_gradient_equals_finite_differences() -> None:
    x = tokens()[:1, :5].clone().requires_grad_()
    assert torch.autograd.gradcheck(build(), (x,))
    assert torch.autograd.gradcheck(build(log_range=0.1), (x,))


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="log_range must be from 0 to 80: got 81"):
        build(log_range=81.0)
