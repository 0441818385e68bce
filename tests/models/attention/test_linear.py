"""Linear attention and its BN and SH forms against the quadratic form, and their identities."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import elu
from torch.utils.flop_counter import FlopCounterMode

from assay.models.attention.linear import CHUNK, LinearAttention, linear_attend
from assay.models.attention.linear_bn import LinearAttentionBN
from assay.models.attention.linear_bn_sh import LinearAttentionBNSH
from assay.models.attention.linear_sh import LinearAttentionSH
from assay.models.layers.attention.scaled_heads import pool_tokens
from assay.models.layers.heads import merge_heads, split_heads
from tests.models.attention.test_memory import largest_made

WIDTH, HEADS = 12, 3


def tokens(count: int = 9, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randn(2, count, WIDTH, generator=generator, dtype=torch.float64)


def made(mechanism: type[nn.Module], **parameters: object) -> nn.Module:
    torch.manual_seed(1)
    return mechanism(WIDTH, HEADS, **parameters).double().eval()


def quadratic(queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool = False) -> Tensor:
    """The N x N matrix of phi(q_i) . phi(k_j), normalised by row."""
    weights = (elu(queries) + 1) @ (elu(keys) + 1).mT
    weights = weights.tril() if causal else weights
    return weights / weights.sum(-1, keepdim=True) @ values


def parts(attention: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    return split_heads(attention.qkv(x), 3, HEADS)  # type: ignore[operator]


def output(attention: nn.Module, by_head: Tensor) -> Tensor:
    result: Tensor = attention.proj(merge_heads(by_head))  # type: ignore[operator]
    return result


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("count", [1, 2, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 200])
def test_equals_its_quadratic_form(count: int, causal: bool) -> None:
    attention, x = made(LinearAttention, causal=causal), tokens(count)
    expected = output(attention, quadratic(*parts(attention, x), causal=causal))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("beta", [0.0, 0.6, 1.3])
def test_bn_equals_its_quadratic_form(beta: float, causal: bool) -> None:
    attention, x = made(LinearAttentionBN, beta=beta, causal=causal), tokens(70)
    queries, keys, values = parts(attention, x)
    mean = keys.mean(2, keepdim=True)
    if causal:
        mean = keys.cumsum(2) / torch.arange(1, 71)[:, None]
    expected = quadratic(queries - beta * mean, keys - beta * mean, values, causal=causal)
    torch.testing.assert_close(attention(x), output(attention, expected), rtol=0, atol=1e-12)


def test_centring_the_keys_is_not_inert() -> None:
    attention, x = made(LinearAttentionBN, beta=1.0), tokens()
    queries, keys, values = parts(attention, x)
    mean = keys.mean(2, keepdim=True)
    without = output(attention, quadratic(queries - mean, keys, values))
    assert (attention(x) - without).abs().max() > 1e-2


def test_the_full_form_divides_by_the_deviation() -> None:
    attention, x = made(LinearAttentionBN, form="full"), tokens()
    queries, keys, values = parts(attention, x)
    mean, scale = 0.6 * keys.mean(2, keepdim=True), (keys.var(2, correction=0, keepdim=True) + 1e-5).rsqrt()
    expected = output(attention, quadratic((queries - mean) * scale, (keys - mean) * scale, values))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta", [None, 0.6])
@pytest.mark.parametrize("count", [1, 2, 9, 10])
def test_scaled_heads_equal_the_formula(count: int, beta: float | None) -> None:
    factors, x = [1, 3, 2], tokens(count)
    attention = made(LinearAttentionSH, factors=factors)
    if beta is not None:
        attention = made(LinearAttentionBNSH, factors=factors, beta=beta)
    heads = []
    for head, factor in enumerate(factors):
        queries = parts(attention, x)[0][:, head]
        _, keys, values = (part[:, head] for part in parts(attention, pool_tokens(x, factor, 1)[0]))
        mean = (beta or 0.0) * keys.mean(1, keepdim=True)
        heads.append(quadratic(queries - mean, keys - mean, values))
    expected = output(attention, torch.stack(heads, dim=1))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_factors_of_one_change_nothing() -> None:
    for scaled, plain in ((LinearAttentionSH, LinearAttention), (LinearAttentionBNSH, LinearAttentionBN)):
        one, other = made(scaled, factors=[1]), made(plain)
        assert torch.equal(one(tokens()), other(tokens()))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mechanism", [LinearAttention, LinearAttentionBN])
def test_padding_does_not_count_wherever_it_is(mechanism: type[nn.Module], causal: bool) -> None:
    attention, x = made(mechanism, causal=causal), tokens()
    mask = torch.tensor([[False, True, True, False, True, True, True, False, False]]).expand(2, -1)
    shown = attention(x, mask=mask)
    torch.testing.assert_close(shown[:, mask[0]], attention(x[:, mask[0]]), rtol=0, atol=1e-12)
    assert torch.isfinite(shown).all()


@pytest.mark.parametrize("shift", [-20.0, -60.0])
def test_float32_holds_where_elu_plus_one_would_be_zero(shift: float) -> None:
    queries, keys, values = (tokens(5, seed)[:, None] for seed in (1, 2, 3))
    queries = queries + shift
    weights = queries.exp() @ (elu(keys) + 1).mT  # elu + 1 is exp below 0
    exact = weights / weights.sum(-1, keepdim=True) @ values
    found = linear_attend(queries.float(), keys.float(), values.float(), None)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=2e-5)


def test_vanishing_features_give_finite_outputs_and_gradients() -> None:
    queries, keys, values = (tokens(5, seed)[:, None].float().requires_grad_() for seed in (1, 2, 3))
    found = linear_attend(queries - 500.0, keys - 500.0, values, None)
    gradients = torch.autograd.grad(found.sum(), [queries, keys, values])
    assert all(torch.isfinite(one).all() for one in (found, *gradients))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mechanism", [LinearAttention, LinearAttentionBN])
def test_gradients(mechanism: type[nn.Module], causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.models.attention.linear.CHUNK", 3)
    attention, x = made(mechanism, causal=causal), tokens(7)[:1].requires_grad_()
    assert torch.autograd.gradcheck(attention, (x,))


@pytest.mark.parametrize("mechanism", [LinearAttention, LinearAttentionBN])
def test_memory_grows_linearly_and_no_matrix_of_tokens_is_made(mechanism: type[nn.Module]) -> None:
    for causal in (True, False):
        attention = mechanism(16, 2, causal=causal).eval()
        assert largest_made(attention) <= 2 * 2 * 512 * (CHUNK if causal else 24)


def test_operations_grow_linearly() -> None:
    def operations(count: int, **form: bool) -> int:
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            LinearAttention(WIDTH, HEADS, **form)(torch.zeros(1, count, WIDTH))
        return int(counter.get_total_flops())

    for causal in (True, False):
        assert operations(8 * CHUNK, causal=causal) == 8 * operations(CHUNK, causal=causal)
