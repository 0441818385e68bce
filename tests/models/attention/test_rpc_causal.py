"""Causal RPC-Attention against the algorithm in NumPy, and which tokens know of which."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.models.attention import rpc_causal as module
from assay.models.attention.rpc import RPCAttention, penalty
from assay.models.attention.rpc_causal import CausalRPCAttention, prefix_penalty
from assay.models.layers.heads import merge_heads, split_heads
from tests.models.attention.algorithm import pursue, weights

TOKENS = 7
MU_TOKENS = ("prefix", "sequence")


def build(**parameters: Any) -> CausalRPCAttention:
    torch.manual_seed(1)
    return CausalRPCAttention(12, 3, **parameters).double().eval()


def tokens(scale: float = 1.0, count: int = TOKENS) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return scale * torch.randn(2, count, 12, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("threshold", ["code", "paper"])
@pytest.mark.parametrize("mu_tokens", MU_TOKENS)
def test_equals_the_algorithm(mu_tokens: str, threshold: str, iterations: int) -> None:
    attention = build(iterations=iterations, regularization=0.2, threshold=threshold, mu_tokens=mu_tokens)
    x = tokens(4.0)
    keys, values = (part.numpy() for part in split_heads(attention.qkv(x).detach(), 2, 3))
    low_rank = np.zeros_like(keys)
    for image, head in itertools.product(range(2), range(3)):
        low_rank[image, head] = pursue(
            keys[image, head],
            values[image, head],
            width=12,
            iterations=iterations,
            regularization=0.2,
            threshold=threshold,
            causal=True,
            prefix=mu_tokens == "prefix",
        )
    expected = attention.proj(merge_heads(torch.from_numpy(low_rank)))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mu_tokens", MU_TOKENS)
def test_one_iteration_without_sparse_part_is_causal_symmetric_attention(mu_tokens: str) -> None:
    attention = build(iterations=1, regularization=1e6, mu_tokens=mu_tokens)
    keys, values = split_heads(attention.qkv(tokens()).detach(), 2, 3)
    matrix = torch.from_numpy(
        np.stack([[weights(head.numpy(), head.numpy(), causal=True) for head in image] for image in keys])
    )
    expected = attention.proj(merge_heads(matrix @ values))
    torch.testing.assert_close(attention(tokens()), expected, rtol=0, atol=1e-12)


def test_with_the_prefix_no_token_depends_on_a_later_one() -> None:
    attention = build(regularization=0.2)
    x = tokens(4.0).requires_grad_()
    output = attention(x)
    for token in range(TOKENS - 1):
        (gradient,) = torch.autograd.grad(output[:, token].square().sum(), x, retain_graph=True)
        assert gradient[:, token].abs().max() > 0
        assert gradient[:, token + 1 :].abs().max() == 0


def test_a_sequence_begins_as_its_beginnings_do() -> None:
    attention, x = build(regularization=0.2), tokens(4.0)
    whole = attention(x)
    for count in range(1, TOKENS):
        torch.testing.assert_close(attention(x[:, :count]), whole[:, :count], rtol=0, atol=1e-12)


def test_with_the_sequence_the_norm_of_later_keys_leaks() -> None:
    x, changed = tokens(4.0), tokens(4.0)
    changed[:, -1] *= 10
    leaking, closed = (build(regularization=0.2, mu_tokens=which) for which in ("sequence", "prefix"))
    assert (leaking(changed) - leaking(x))[:, :-1].abs().max() > 1e-3
    torch.testing.assert_close(closed(changed)[:, :-1], closed(x)[:, :-1], rtol=0, atol=1e-12)


def test_the_penalty_of_a_prefix_is_that_of_the_sequence_which_ends_there() -> None:
    keys = torch.randn(2, 3, TOKENS, 4, dtype=torch.float64)
    prefixes = prefix_penalty(keys, 12)
    assert prefixes.shape == (2, 3, TOKENS, 1)
    for count in range(1, TOKENS + 1):
        expected = penalty(keys[:, :, :count], 12)[:, :, 0]
        torch.testing.assert_close(prefixes[:, :, count - 1], expected, rtol=1e-14, atol=0)


@pytest.mark.parametrize("mu_tokens", MU_TOKENS)
@pytest.mark.parametrize("threshold", ["code", "paper"])
def test_padding_on_either_side_changes_nothing_and_stays_finite(mu_tokens: str, threshold: str) -> None:
    attention = build(regularization=0.2, mu_tokens=mu_tokens, threshold=threshold)
    x, padding = tokens(4.0), 100 * torch.randn(2, 3, 12, dtype=torch.float64)
    expected = attention(x)
    for before in (True, False):
        padded = torch.cat([padding, x] if before else [x, padding], dim=1).requires_grad_()
        mask = torch.arange(TOKENS + 3).expand(2, -1) >= 3 if before else torch.arange(TOKENS + 3) < TOKENS
        mask = mask.expand(2, -1)
        output = attention(padded, mask=mask)
        torch.testing.assert_close(output[mask].view_as(x), expected, rtol=0, atol=1e-10)
        (gradient,) = torch.autograd.grad(output[mask].square().sum(), padded)
        assert torch.isfinite(gradient).all()
        assert gradient[~mask].abs().max() == 0


@pytest.mark.parametrize("mu_tokens", MU_TOKENS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_zero_keys_give_finite_numbers(mu_tokens: str, dtype: torch.dtype) -> None:
    attention = build(mu_tokens=mu_tokens, threshold="paper").to(dtype)
    with torch.no_grad():
        attention.qkv.bias.zero_()
    x = torch.zeros(2, TOKENS, 12, dtype=dtype, requires_grad=True)
    output = attention(x)
    (gradient,) = torch.autograd.grad(output.sum(), x)
    assert torch.isfinite(output).all()
    assert torch.isfinite(gradient).all()


def test_gradient_equals_finite_differences() -> None:
    x = tokens(count=5)[:1].clone().requires_grad_()
    assert torch.autograd.gradcheck(build(iterations=2, regularization=0.3), (x,))


def test_takes_the_weights_of_rpc() -> None:
    build().load_state_dict(RPCAttention(12, 3).state_dict())


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="mu_tokens must be 'prefix' or 'sequence': got 'all'"):
        build(mu_tokens="all")
    with pytest.raises(ValueError, match="regularization must be at least 0"):
        build(regularization=-1.0)


@pytest.mark.parametrize(
    ("layers", "depth", "allowed"),
    [
        ("all", 4, False),
        ("first", 4, True),
        ("last", 12, True),
        ("first", 1, False),
        ([0, 1], 3, True),
        ([0, 1], 2, False),
    ],
)
def test_rule_wants_a_layer_that_is_not_causal(broken: Any, layers: Any, depth: int, allowed: bool) -> None:
    given = {"layers": layers, "depth": depth, "mu_tokens": "prefix"}
    assert (broken(module, **given, prefix_tokens=1) == []) is allowed
    assert broken(module, **given, prefix_tokens=0) == []
