"""The causal forms of the mechanisms against the forms without a mask, and against their formulas."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.models.attention.rpc_asymmetric import AsymmetricRPCAttention
from assay.models.attention.rpc_causal import CausalRPCAttention
from assay.models.attention.scaled_alpha import AlphaScaledAttention
from assay.models.attention.scaled_learned import LearnedScaledAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.lookup import attentions, find_attention
from assay.models.layers.heads import has_causal_form, merge_heads, split_heads
from tests.models.attention.algorithm import pursue

WIDTH, HEADS, TOKENS = 12, 3, 7


def made(mechanism: type[nn.Module], **parameters: object) -> nn.Module:
    torch.manual_seed(1)
    return mechanism(WIDTH, HEADS, **parameters).double().eval()


def tokens(scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return scale * torch.randn(2, TOKENS, WIDTH, generator=generator, dtype=torch.float64)


def lower(scores: Tensor) -> Tensor:
    """Softmax of scores (..., N, N) over each token and those before it."""
    return scores.masked_fill(~torch.ones(TOKENS, TOKENS).tril().bool(), -torch.inf).softmax(-1)


def test_those_that_have_one() -> None:
    able = {name for name, mechanism in attentions().items() if has_causal_form(mechanism)}
    assert {"softmax", "symmetric", "rpc_causal", "rpc_asymmetric", "scaled_alpha"} <= able
    assert {"rpc", "scaled_exact"} & able == set()


@pytest.mark.parametrize("name", ["softmax", "softmax_standardized", "symmetric"])
def test_a_token_has_what_the_last_of_a_sequence_has(name: str) -> None:
    mechanism, x = find_attention(name), tokens(3.0)
    causal, plain = made(mechanism, causal=True), made(mechanism)  # type: ignore[arg-type]
    whole = causal(x)
    for count in range(1, TOKENS + 1):
        expected = plain(x[:, :count])[:, -1]
        torch.testing.assert_close(whole[:, count - 1], expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("iterations", [1, 2, 5])
@pytest.mark.parametrize("threshold", ["code", "paper"])
def test_asymmetric_rpc_equals_the_algorithm(threshold: str, iterations: int) -> None:
    options = {"iterations": iterations, "regularization": 0.2, "threshold": threshold}
    attention, x = made(AsymmetricRPCAttention, causal=True, **options), tokens(4.0)
    queries, keys, values = (p.detach().numpy() for p in split_heads(attention.qkv(x), 3, HEADS))  # type: ignore[operator]
    low_rank = np.zeros_like(keys)
    for image, head in itertools.product(range(2), range(HEADS)):
        place = image, head
        low_rank[place] = pursue(
            keys[place],
            values[place],
            q=queries[place],
            width=WIDTH,
            causal=True,
            prefix=True,
            **options,  # type: ignore[arg-type]
        )
    expected = attention.proj(merge_heads(torch.from_numpy(low_rank)))  # type: ignore[operator]
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-9)


def test_alpha_scaling_equals_the_formula() -> None:
    attention, x = made(AlphaScaledAttention, causal=True), tokens()
    nn.init.constant_(attention.alpha, 0.7)  # type: ignore[arg-type]
    queries, keys, values = split_heads(attention.qkv(x), 3, HEADS)  # type: ignore[operator]
    symmetric = lower(keys @ keys.mT / 2.0) @ values
    expected = lower(queries @ keys.mT / 2.0) @ (values - 0.7 * symmetric)
    torch.testing.assert_close(attention(x), attention.proj(merge_heads(expected)), rtol=0, atol=1e-12)  # type: ignore[operator]


def test_of_a_learned_s_the_lower_part_counts() -> None:
    attention, x = made(LearnedScaledAttention, patches=TOKENS, prefix_tokens=0, causal=True), tokens()
    with torch.no_grad():
        attention.s.normal_(generator=torch.Generator().manual_seed(3))  # type: ignore[operator]
    before = attention(x)
    with torch.no_grad():
        attention.s += torch.ones(TOKENS, TOKENS).triu(1)  # type: ignore[operator]
    assert torch.equal(attention(x), before)
    with torch.no_grad():
        attention.s += torch.eye(TOKENS)  # type: ignore[operator]
    assert (attention(x) - before).abs().max() > 1e-3


def test_the_forms_have_the_same_weights() -> None:
    plain, causal = made(SoftmaxAttention), made(SoftmaxAttention, causal=True)
    causal.load_state_dict(plain.state_dict())
    assert (causal(tokens()) - plain(tokens()))[:, :-1].abs().amax(dim=(0, 2)).min() > 1e-6


def test_rpc_causal_has_no_other_form() -> None:
    with pytest.raises(ValueError, match="rpc_causal is always causal"):
        made(CausalRPCAttention, causal=False)
    assert made(CausalRPCAttention, mu_tokens="sequence").sees_later_tokens
