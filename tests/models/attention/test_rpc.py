"""RPC-Attention against the authors' module, Algorithm 1 in NumPy with every switch, and its identities."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.models.attention import rpc
from assay.models.attention.rpc import RPCAttention, penalty
from assay.models.attention.symmetric import SymmetricAttention
from assay.models.layers.attention.pursuit_steps import shrink
from assay.models.layers.heads import merge_heads, split_heads
from tests.models.attention.algorithm import pursue

NAMES = ("s_n1", "s_n2", "s_n4", "m_n1", "m_n2", "l_n1", "l_n4")
SWITCHES = tuple(itertools.product(("code", "paper"), ("full", "head"), (-1, 1)))


def authors(stored: Any) -> RPCAttention:
    """The mechanism with the stored weights and parameters."""
    attention = RPCAttention(12, 3, iterations=int(stored["n"]), regularization=float(stored["lambd"]))
    loaded: RPCAttention = stored.load(attention)
    return loaded


def keys_and_values(attention: RPCAttention, x: Tensor) -> tuple[Tensor, ...]:
    return split_heads(attention.qkv(x).detach(), 2, attention.heads)  # (B, H, N, D) each


@pytest.mark.parametrize("name", NAMES)
def test_output_equals_the_authors_module(name: str, vector: Callable[[str], Any]) -> None:
    stored = vector(f"rpc_sym_{name}")
    torch.testing.assert_close(authors(stored)(stored["x"]), stored["out64"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_equals_the_authors_module(name: str, vector: Callable[[str], Any]) -> None:
    stored = vector(f"rpc_sym_{name}")
    x = stored["x"].requires_grad_()
    (gradient,) = torch.autograd.grad((authors(stored)(x) * stored["R"]).sum(), x)
    expected = stored["grad_x64"]
    assert (gradient - expected).abs().max() <= 1e-9 * expected.abs().max()


@pytest.mark.parametrize("name", NAMES)
def test_penalty_and_active_share_equal_the_authors(name: str, vector: Callable[[str], Any]) -> None:
    stored = vector(f"rpc_sym_{name}")
    keys, _ = keys_and_values(authors(stored), stored["x"])
    mu = penalty(keys, 12)
    torch.testing.assert_close(mu, stored["mu"], rtol=1e-6, atol=0)
    active = (shrink(keys, float(stored["lambd"]) * mu) != 0).double().mean()
    torch.testing.assert_close(active, stored["s1_active"], rtol=0, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize(("threshold", "mu_width", "dual_sign"), SWITCHES)
def test_every_switch_equals_the_algorithm(
    threshold: rpc.Threshold, mu_width: rpc.MuWidth, dual_sign: rpc.DualSign, iterations: int
) -> None:
    torch.manual_seed(1)
    attention = RPCAttention(
        12,
        3,
        iterations=iterations,
        regularization=0.2,  # the sparse part is neither empty nor everything, for all switches
        threshold=threshold,
        mu_width=mu_width,
        dual_sign=dual_sign,
    ).double()
    x = 4 * torch.randn(2, 7, 12, dtype=torch.float64)
    keys, values = (part.numpy() for part in keys_and_values(attention, x))
    low_rank = np.zeros_like(keys)
    for image, head in itertools.product(range(2), range(3)):
        low_rank[image, head] = pursue(
            keys[image, head],
            values[image, head],
            width=12 if mu_width == "full" else 4,
            iterations=iterations,
            regularization=0.2,
            threshold=threshold,
            dual_sign=dual_sign,
        )
    expected = attention.proj(merge_heads(torch.from_numpy(low_rank)))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("threshold", "mu_width", "dual_sign"), SWITCHES)
def test_every_iteration_of_the_trace_equals_the_algorithm(
    threshold: rpc.Threshold, mu_width: rpc.MuWidth, dual_sign: rpc.DualSign
) -> None:
    torch.manual_seed(1)
    switches: dict[str, Any] = {"threshold": threshold, "mu_width": mu_width, "dual_sign": dual_sign}
    attention = RPCAttention(12, 3, iterations=3, regularization=0.2, **switches).double()
    x = 4 * torch.randn(2, 7, 12, dtype=torch.float64)
    keys, values = (part[1, 2].numpy() for part in keys_and_values(attention, x))
    with torch.no_grad():
        trace = attention.pursuit(x)
    assert (len(trace.sparse), len(trace.low_rank)) == (3, 3)
    np.testing.assert_array_equal(trace.keys[1, 2], keys)
    width = 12 if mu_width == "full" else 4
    mu = 7 * width / (4 * np.abs(keys).sum())
    tau = 0.2 * mu if threshold == "code" else 0.2 / mu
    moved = keys  # K - L + Y / mu, from the parts of the trace alone
    scaled_dual = np.zeros_like(keys)
    for number, (sparse, low_rank) in enumerate(zip(trace.sparse, trace.low_rank, strict=True)):
        expected = np.sign(moved) * np.maximum(np.abs(moved) - tau, 0)
        np.testing.assert_allclose(sparse[1, 2], expected, rtol=0, atol=1e-9)
        rank = {"iterations": number + 1, "regularization": 0.2, "width": width}
        found = pursue(keys, values, **rank, threshold=threshold, dual_sign=dual_sign)
        np.testing.assert_allclose(low_rank[1, 2], found, rtol=0, atol=1e-9)
        scaled_dual = scaled_dual + keys - found - expected
        moved = keys - found + scaled_dual
    torch.testing.assert_close(attention(x), attention.proj(merge_heads(trace.low_rank[-1])))


def test_the_switches_differ() -> None:
    x = 4 * torch.randn(2, 7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    outputs = []
    for threshold, mu_width, dual_sign in SWITCHES:
        torch.manual_seed(1)
        attention = RPCAttention(
            12,
            3,
            regularization=0.2,
            threshold=threshold,
            mu_width=mu_width,
            dual_sign=dual_sign,  # type: ignore[arg-type]
        )
        outputs.append(attention.double()(x).detach())
    for one, other in itertools.combinations(outputs, 2):
        assert not torch.allclose(one, other, atol=1e-3)


def twins(iterations: int) -> tuple[RPCAttention, SymmetricAttention]:
    """RPC with an inactive sparse part, and symmetric attention with the same weights."""
    torch.manual_seed(2)
    robust = RPCAttention(12, 3, iterations=iterations, regularization=1e6).double()
    symmetric = SymmetricAttention(12, 3).double()
    symmetric.load_state_dict(robust.state_dict())
    return robust, symmetric


def test_one_iteration_without_sparse_part_is_symmetric_attention() -> None:
    robust, symmetric = twins(1)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    torch.testing.assert_close(robust(x), symmetric(x), rtol=0, atol=1e-13)


def test_without_sparse_part_the_second_point_is_the_first_output_and_the_third_is_their_sum_less_k() -> None:
    robust, _ = twins(3)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    keys, values = keys_and_values(robust, x)

    def attend(point: Tensor) -> Tensor:
        return torch.softmax(point @ point.transpose(-1, -2) / 2.0, dim=-1) @ values

    first = attend(keys)
    second = attend(first)
    third = attend(first + second - keys)
    torch.testing.assert_close(robust(x), robust.proj(merge_heads(third)), rtol=0, atol=1e-12)


def test_the_first_point_is_the_clipped_key() -> None:
    torch.manual_seed(3)
    robust = RPCAttention(12, 3, iterations=1, regularization=0.05).double()
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    keys, values = keys_and_values(robust, x)
    bound = 0.05 * penalty(keys, 12)
    assert (keys.abs() > bound).any()
    point = keys.clamp(-bound, bound)
    low_rank = torch.softmax(point @ point.transpose(-1, -2) / 2.0, dim=-1) @ values
    torch.testing.assert_close(robust(x), robust.proj(merge_heads(low_rank)), rtol=0, atol=1e-12)


def test_gradient_flows_through_the_penalty() -> None:
    torch.manual_seed(4)
    attention = RPCAttention(12, 3, iterations=2, regularization=0.3).double()
    x = torch.randn(1, 5, 12, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(attention, (x,))


@pytest.mark.parametrize("threshold", ["code", "paper"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_zero_keys_give_finite_numbers(threshold: rpc.Threshold, dtype: torch.dtype) -> None:
    keys = torch.zeros(1, 3, 7, 4, dtype=dtype)
    mu = penalty(keys, 12)
    assert torch.isfinite(mu).all()
    assert (mu > 0).all()
    attention = RPCAttention(12, 3, threshold=threshold).to(dtype)
    with torch.no_grad():
        attention.qkv.bias.zero_()
    x = torch.zeros(2, 7, 12, dtype=dtype, requires_grad=True)
    output = attention(x)
    (gradient,) = torch.autograd.grad(output.sum(), x)
    assert torch.isfinite(output).all()
    assert torch.isfinite(gradient).all()


def test_padding_counts_neither_in_the_penalty_nor_in_the_output() -> None:
    torch.manual_seed(5)
    attention = RPCAttention(12, 3, regularization=0.2).double()
    x = torch.randn(1, 5, 12, dtype=torch.float64)
    padded = torch.cat([x, 100 * torch.randn(1, 4, 12, dtype=torch.float64)], dim=1)
    mask = torch.tensor([[True] * 5 + [False] * 4])
    torch.testing.assert_close(attention(padded, mask=mask)[:, :5], attention(x), rtol=0, atol=1e-10)


def test_dropout_acts_on_the_last_iteration_only(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []

    def attend(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
        rates.append(dropout)
        return values

    monkeypatch.setattr(rpc, "attend", attend)
    attention = RPCAttention(12, 3, iterations=3, dropout=0.1)
    attention(torch.randn(1, 5, 12))
    assert rates == [0.0, 0.0, 0.1]
    rates.clear()
    attention.eval()(torch.randn(1, 5, 12))
    assert rates == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"regularization": -1.0}, "regularization must be at least 0"),
        ({"regularization": float("nan")}, "regularization must be at least 0"),
        ({"threshold": "papper"}, "threshold must be 'code' or 'paper': got 'papper'"),
        ({"mu_width": "half"}, "mu_width must be 'full' or 'head'"),
        ({"dual_sign": 0}, "dual_sign must be -1 or 1"),
        ({"heads": 5}, "heads must divide width"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RPCAttention(12, **{"heads": 3, **parameters})
