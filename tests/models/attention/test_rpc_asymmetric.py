"""Asymmetric RPC-Attention against the algorithm in NumPy with the queries kept, and its identities."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.models.attention import rpc, rpc_asymmetric
from assay.models.attention.rpc import RPCAttention, penalty
from assay.models.attention.rpc_asymmetric import AsymmetricRPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.heads import merge_heads, split_heads
from tests.models.attention.algorithm import pursue

SWITCHES = tuple(itertools.product(("code", "paper"), ("full", "head"), (-1, 1)))


def build(**parameters: object) -> AsymmetricRPCAttention:
    torch.manual_seed(1)
    return AsymmetricRPCAttention(12, 3, **parameters).double()  # type: ignore[arg-type]


def tokens(scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return scale * torch.randn(2, 7, 12, generator=generator, dtype=torch.float64)


def parts(attention: AsymmetricRPCAttention, x: Tensor) -> tuple[Tensor, ...]:
    return split_heads(attention.qkv(x).detach(), 3, 3)  # q, k, v, (B, H, N, D) each


@pytest.mark.sampled
@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize(("threshold", "mu_width", "dual_sign"), SWITCHES)
def test_every_switch_equals_the_algorithm(
    threshold: rpc.Threshold, mu_width: rpc.MuWidth, dual_sign: rpc.DualSign, iterations: int
) -> None:
    attention = build(
        iterations=iterations,
        regularization=0.2,  # the sparse part is neither empty nor everything, for all switches
        threshold=threshold,
        mu_width=mu_width,
        dual_sign=dual_sign,
    )
    x = tokens(4.0)
    queries, keys, values = (part.numpy() for part in parts(attention, x))
    low_rank = np.zeros_like(keys)
    for image, head in itertools.product(range(2), range(3)):
        low_rank[image, head] = pursue(
            keys[image, head],
            values[image, head],
            q=queries[image, head],
            width=12 if mu_width == "full" else 4,
            iterations=iterations,
            regularization=0.2,
            threshold=threshold,
            dual_sign=dual_sign,
        )
    expected = attention.proj(merge_heads(torch.from_numpy(low_rank)))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-9)


def test_one_iteration_without_sparse_part_is_softmax_attention() -> None:
    robust, softmax = build(iterations=1, regularization=1e6), SoftmaxAttention(12, 3).double()
    softmax.load_state_dict(robust.state_dict())
    torch.testing.assert_close(robust(tokens()), softmax(tokens()), rtol=0, atol=1e-13)


def test_without_sparse_part_the_second_keys_are_the_first_output_and_the_third_their_sum_less_k() -> None:
    robust = build(iterations=3, regularization=1e6)
    queries, keys, values = parts(robust, tokens())

    def attend(point: Tensor) -> Tensor:
        return torch.softmax(queries @ point.transpose(-1, -2) / 2.0, dim=-1) @ values

    first = attend(keys)
    second = attend(first)
    third = attend(first + second - keys)
    torch.testing.assert_close(robust(tokens()), robust.proj(merge_heads(third)), rtol=0, atol=1e-12)


def test_the_first_keys_are_clipped_and_the_queries_are_not() -> None:
    robust = build(iterations=1, regularization=0.05)
    queries, keys, values = parts(robust, tokens())
    bound = 0.05 * penalty(keys, 12)
    assert (keys.abs() > bound).any()
    assert (queries.abs() > bound).any()
    matrix = torch.softmax(queries @ keys.clamp(-bound, bound).transpose(-1, -2) / 2.0, dim=-1)
    expected = robust.proj(merge_heads(matrix @ values))
    torch.testing.assert_close(robust(tokens()), expected, rtol=0, atol=1e-12)


def test_with_the_keys_as_queries_one_iteration_is_symmetric_and_further_ones_are_not() -> None:
    for iterations, equal in ((1, True), (2, False)):
        symmetric = RPCAttention(12, 3, iterations=iterations, regularization=1e6).double()
        asymmetric = build(iterations=iterations, regularization=1e6)
        weights = symmetric.state_dict()
        for part in ("qkv.weight", "qkv.bias"):
            keys, values = weights[part].chunk(2)
            weights[part] = torch.cat([keys, keys, values])
        asymmetric.load_state_dict(weights)
        assert torch.allclose(asymmetric(tokens()), symmetric(tokens()), rtol=0, atol=1e-12) is equal


def test_gradient_equals_finite_differences() -> None:
    x = tokens()[:1, :5].clone().requires_grad_()
    assert torch.autograd.gradcheck(build(iterations=2, regularization=0.3), (x,))


def test_dropout_acts_on_the_last_iteration_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    def attend(
        queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dropout: float, *, causal: bool
    ) -> Tensor:
        rates.append(dropout)
        return values

    monkeypatch.setattr(rpc_asymmetric, "attend", attend)
    build(iterations=3, dropout=0.1)(tokens())
    assert rates == [0.0, 0.0, 0.1]


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 1: got 0"):
        build(iterations=0)
