"""Softmax attention of standardised queries and keys, against the authors' module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from assay.models.attention.softmax_standardized import StandardizedSoftmaxAttention, standardize


@pytest.mark.parametrize("name", ["reconstruction", "reconstruction_nan"])
def test_output_equals_the_authors_module(name: str, vector: Callable[[str], Any]) -> None:
    stored = vector(name)
    attention = stored.load(StandardizedSoftmaxAttention(12, 3))
    torch.testing.assert_close(attention(stored["x"]), stored["out64"], rtol=0, atol=1e-9)


def test_every_token_gets_mean_zero_and_unbiased_deviation_one() -> None:
    features = standardize(5 * torch.randn(2, 3, 7, 4, dtype=torch.float64) + 3)
    zeros = torch.zeros(2, 3, 7, dtype=torch.float64)
    torch.testing.assert_close(features.mean(dim=-1), zeros, rtol=0, atol=1e-14)
    torch.testing.assert_close(features.std(dim=-1, unbiased=True), zeros + 1, rtol=0, atol=1e-14)


def test_neither_scale_nor_shift_of_the_queries_matters() -> None:
    torch.manual_seed(0)
    attention = StandardizedSoftmaxAttention(12, 3).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    before = attention(x)
    with torch.no_grad():
        attention.qkv.weight[:24] *= 5.0  # q and k
        attention.qkv.bias[:24] = 5.0 * attention.qkv.bias[:24] + 2.0
    torch.testing.assert_close(attention(x), before, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_features_give_finite_numbers(dtype: torch.dtype) -> None:
    features = torch.ones(1, 3, 7, 4, dtype=dtype, requires_grad=True)
    standardized = standardize(features)
    (gradient,) = torch.autograd.grad(standardized.sum(), features)
    assert (standardized == 0).all()
    assert torch.isfinite(gradient).all()


def test_gradient_equals_finite_differences() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 5, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(StandardizedSoftmaxAttention(12, 3).double(), (x,))


def test_heads_of_one_feature_are_refused() -> None:
    with pytest.raises(ValueError, match="width must be more than heads"):
        StandardizedSoftmaxAttention(12, 12)
    with pytest.raises(ValueError, match="heads must divide width"):
        StandardizedSoftmaxAttention(10, 3)
