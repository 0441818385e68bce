"""Attention-SH and Attention-BN+SH against their formulas, and what is pooled."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from assay.models.attention import attention_sh as module
from assay.models.attention.attention_bn import AttentionBN
from assay.models.attention.attention_bn_sh import AttentionBNSH
from assay.models.attention.attention_sh import AttentionSH
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.heads import merge_heads
from assay.service.catalog.rules import evaluate

WIDTH, HEADS, DEPTH = 12, 4, 3


def tokens(count: int, seed: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 2.0 * torch.randn(2, count, WIDTH, generator=generator, dtype=torch.float64)


def same_weights(one: nn.Module, other: nn.Module) -> None:
    one.double().eval()
    other.double().eval().load_state_dict(one.state_dict())


def by_the_formula(attention: nn.Module, x: Tensor, factors: list[int], prefix: int, beta: float) -> Tensor:
    """Equations 25 and 51 for each head and query, with windows that are averaged one by one."""
    weight, bias = (
        part.unflatten(0, (3, HEADS, DEPTH)) for part in (attention.qkv.weight, attention.qkv.bias)
    )  # type: ignore[union-attr]
    heads = []
    for head, factor in enumerate(factors):
        starts = range(prefix, x.shape[1], factor)
        pooled = [x[:, place] for place in range(prefix)]
        pooled += [x[:, start : start + factor].mean(1) for start in starts]
        seen = torch.stack(pooled, dim=1)
        q = x @ weight[0, head].T + bias[0, head]
        k, v = (seen @ weight[part, head].T + bias[part, head] for part in (1, 2))
        mean = k.mean(1, keepdim=True)
        scores = (q - beta * mean) @ (k - beta * mean).mT / math.sqrt(DEPTH)
        heads.append(scores.softmax(-1) @ v)
    result: Tensor = attention.proj(merge_heads(torch.stack(heads, dim=1)))  # type: ignore[operator]
    return result


@pytest.mark.sampled
@pytest.mark.parametrize("prefix", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 8, 9, 10, 13])
@pytest.mark.parametrize("factors", [[1, 1, 2, 4], [3, 1, 3, 2], [2, 5], [7]])
def test_equal_the_formula(factors: list[int], count: int, prefix: int) -> None:
    every = factors * (HEADS // len(factors))
    plain = AttentionSH(WIDTH, HEADS, factors=factors, prefix_tokens=prefix)
    centred = AttentionBNSH(WIDTH, HEADS, factors=factors, beta=0.6, prefix_tokens=prefix)
    same_weights(plain, centred)
    x = tokens(count)
    for attention, beta in ((plain, 0.0), (centred, 0.6)):
        expected = by_the_formula(attention, x, every, prefix, beta)
        torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_with_factors_of_one_it_is_softmax() -> None:
    attention, softmax = AttentionSH(WIDTH, HEADS, factors=[1]), SoftmaxAttention(WIDTH, HEADS)
    same_weights(attention, softmax)
    torch.testing.assert_close(attention(tokens(9)), softmax(tokens(9)), rtol=0, atol=1e-13)


@pytest.mark.parametrize("form", ["beta", "full"])
def test_with_factors_of_one_bn_and_sh_is_bn(form: str) -> None:
    shared = {"form": form, "beta": 0.6, "learn_beta": True}
    attention = AttentionBNSH(WIDTH, HEADS, factors=[1], **shared)  # type: ignore[arg-type]
    alone = AttentionBN(WIDTH, HEADS, **shared)  # type: ignore[arg-type]
    same_weights(attention, alone)
    torch.testing.assert_close(attention(tokens(9)), alone(tokens(9)), rtol=0, atol=1e-13)


def test_the_full_form_divides_by_the_deviation_of_each_heads_own_keys() -> None:
    """On windows whose tokens are equal, pooling by 2 changes neither keys nor statistics."""
    pooled, plain = (AttentionBNSH(WIDTH, HEADS, form="full", factors=[f], prefix_tokens=0) for f in (2, 1))
    same_weights(pooled, plain)
    x = tokens(5).repeat_interleave(2, dim=1)
    torch.testing.assert_close(pooled(x), plain(x), rtol=0, atol=1e-11)
    assert (pooled(tokens(10)) - plain(tokens(10))).abs().max() > 1e-3


@pytest.mark.parametrize("mechanism", [AttentionSH, AttentionBNSH])
@pytest.mark.parametrize("padding", [1, 2, 3, 7])
def test_padding_after_any_length_does_not_count(mechanism: type[nn.Module], padding: int) -> None:
    attention = mechanism(WIDTH, HEADS).double().eval()
    for count in (2, 5, 6, 9):
        x = tokens(count)
        mask = torch.arange(count + padding).expand(2, -1) < count
        padded = attention(torch.cat([x, 50 * tokens(padding, seed=5)], dim=1), mask=mask)
        torch.testing.assert_close(padded[:, :count], attention(x), rtol=0, atol=1e-11)
        assert torch.isfinite(padded).all()


@pytest.mark.parametrize("factors", [[], [1, 2, 3], [0], [1] * 8])
def test_factors_that_do_not_suit_are_refused_by_rule_and_constructor(factors: list[int]) -> None:
    with pytest.raises(ValueError, match="factors must"):
        AttentionSH(WIDTH, HEADS, factors=factors)
    ((rule, _),) = module.RULES
    if factors not in ([], [0]):  # the schema refuses these
        known = {"model": {"heads": HEADS}, "params": {"factors": factors}}
        assert not evaluate(rule, known)
        assert evaluate(rule, known | {"params": {"factors": None}})
        assert evaluate(rule, known | {"params": {"factors": [1, 2]}})


def test_gradients() -> None:
    attention = AttentionBNSH(WIDTH, HEADS, form="full", factors=[1, 2]).double().eval()
    mask = torch.tensor([[True, True, True, True, False]])
    x = tokens(5)[:1].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: attention(x, mask=mask)[:, :4], (x,))


def test_projections_without_biases() -> None:
    attention = AttentionSH(WIDTH, HEADS).double().eval()
    with torch.no_grad():
        attention.qkv.bias.zero_()
    expected = attention(tokens(9))
    attention.qkv.register_parameter("bias", None)
    torch.testing.assert_close(attention(tokens(9)), expected, rtol=0, atol=1e-13)


def test_operations_shrink_with_the_keys() -> None:
    """Attention proper has N (N / 1 + N / 1 + N / 2 + N / 4) scores, 11 / 16 of softmax's, and fewer keys."""
    x = torch.zeros(1, 64, WIDTH)
    counts = []
    for factors in ([1], [1, 1, 2, 4]):
        attention = AttentionSH(WIDTH, HEADS, factors=factors, prefix_tokens=0)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            attention(x)
        counts.append(counter.get_total_flops())
    softmax = 2 * (4 * 64 * WIDTH * WIDTH + 2 * 64 * 64 * WIDTH)
    scaled = 2 * ((2 + 2 * 11 / 16) * 64 * WIDTH * WIDTH + 2 * 64 * 64 * WIDTH * 11 / 16)
    assert counts == [softmax, scaled]
