"""Attention-BN against its formulas and identities."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.models.attention.attention_bn import AttentionBN
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.key_normalization import Form
from assay.models.layers.heads import merge_heads, split_heads

WIDTH, HEADS, TOKENS = 12, 3, 7
BETAS = (0.0, 0.35, 1.0, 1.2)


def made(**parameters: object) -> AttentionBN:
    torch.manual_seed(1)
    return AttentionBN(WIDTH, HEADS, **parameters).double().eval()  # type: ignore[arg-type]


def tokens(count: int = TOKENS, scale: float = 3.0) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return scale * torch.randn(2, count, WIDTH, generator=generator, dtype=torch.float64)


def by_the_formula(
    attention: AttentionBN, x: Tensor, form: Form, beta: float, *, centre_keys: bool
) -> Tensor:
    """Equations 22, 23 and 26, head by head and query by query."""
    queries, keys, values = split_heads(attention.qkv(x), 3, HEADS)
    output = torch.zeros_like(values)
    for sequence in range(x.shape[0]):
        for head in range(HEADS):
            k, v = keys[sequence, head], values[sequence, head]
            mean = sum(k) / len(k)
            scale = torch.ones(k.shape[1], dtype=k.dtype)
            if form == "full":
                scale = 1 / torch.sqrt(sum((one - mean) ** 2 for one in k) / len(k) + 1e-5)
            shifted = (k - (beta * mean if centre_keys else 0.0)) * scale
            for place in range(len(k)):
                query = (queries[sequence, head, place] - beta * mean) * scale
                weights = torch.softmax(shifted @ query / math.sqrt(k.shape[1]), dim=0)
                output[sequence, head, place] = weights @ v
    result: Tensor = attention.proj(merge_heads(output))
    return result


@pytest.mark.parametrize("centre_keys", [True, False])
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("form", ["beta", "full"])
def test_equals_the_formula_and_centring_the_keys_is_inert(
    form: Form, beta: float, centre_keys: bool
) -> None:
    attention, x = made(form=form, beta=beta), tokens()
    expected = by_the_formula(attention, x, form, beta, centre_keys=centre_keys)
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_without_a_mean_it_is_softmax(causal: bool) -> None:
    attention, softmax = made(beta=0.0, causal=causal), SoftmaxAttention(WIDTH, HEADS, causal=causal).double()
    softmax.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attention(tokens()), softmax(tokens()), rtol=0, atol=1e-13)
    assert (made(beta=1.0, causal=causal)(tokens()) - softmax(tokens())).abs().max() > 1e-3


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("form", ["beta", "full"])
def test_causal_token_has_what_the_last_of_a_sequence_has(form: Form, beta: float) -> None:
    causal, plain, x = made(form=form, beta=beta, causal=True), made(form=form, beta=beta), tokens()
    whole = causal(x)
    for count in range(1, TOKENS + 1):
        torch.testing.assert_close(whole[:, count - 1], plain(x[:, :count])[:, -1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["beta", "full"])
def test_padding_does_not_count_wherever_it_is(form: Form, causal: bool) -> None:
    attention, x = made(form=form, causal=causal), tokens()
    mask = torch.tensor([[False, True, True, False, True, True, False]]).expand(2, -1)
    shown = attention(x, mask=mask)[:, mask[0]]
    torch.testing.assert_close(shown, attention(x[:, mask[0]]), rtol=0, atol=1e-11)
    assert torch.isfinite(attention(x, mask=mask)).all()


def test_a_common_shift_of_the_keys_is_removed_by_the_full_form() -> None:
    attention, x = made(form="full"), tokens()
    before = attention(x)
    with torch.no_grad():
        attention.qkv.bias[:WIDTH] += 5.0  # of q and k alike
        attention.qkv.bias[WIDTH : 2 * WIDTH] += 5.0
    torch.testing.assert_close(attention(x), before, rtol=0, atol=1e-11)


@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_prefix_variances_are_exact_far_from_the_origin(offset: float) -> None:
    attention, x = made(form="full", causal=True).float(), tokens().float()
    with torch.no_grad():
        attention.qkv.bias[: 2 * WIDTH] += offset
    exact = made(form="full", causal=True)
    with torch.no_grad():
        exact.qkv.bias[: 2 * WIDTH] += offset
    torch.testing.assert_close(attention(x).double(), exact(x.double()), rtol=0, atol=2e-5 + 3e-6 * offset)


def test_a_learned_beta_is_a_weight_with_a_gradient() -> None:
    attention, x = made(beta=0.4, learn_beta=True), tokens()
    torch.testing.assert_close(attention(x), made(beta=0.4)(x), rtol=0, atol=1e-7)  # 0.4 in float32
    assert set(attention.state_dict()) - set(made().state_dict()) == {"normalization.beta"}
    (gradient,) = torch.autograd.grad(attention(x).square().sum(), attention.normalization.beta)  # type: ignore[arg-type]
    assert gradient.abs() > 1e-3


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("form", ["beta", "full"])
def test_gradients(form: Form, causal: bool) -> None:
    attention = made(form=form, beta=0.7, learn_beta=True, causal=causal)
    mask = torch.tensor([[True, True, True, False]])
    x = tokens(4, 1.0)[:1].requires_grad_()

    def run(x: Tensor, beta: Tensor) -> Tensor:
        replaced = {"normalization.beta": beta}
        return torch.func.functional_call(attention, replaced, (x,), {"mask": mask})[:, :3]

    beta = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, beta))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"form": "whole"}, "form must be 'beta' or 'full': got 'whole'"),
        ({"beta": -0.1}, "beta must be from 0"),
    ],
)
def test_refuses(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**parameters)
