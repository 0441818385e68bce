"""Normalisation by the keys against its formulas, sequence by sequence and head by head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.layers.attention.key_normalization import EPSILON, KeyNormalization

B, H, N, M, D = 2, 3, 4, 5, 2


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(form: Any, beta: float = 0.7, *, learn_beta: bool = False) -> KeyNormalization:
    return KeyNormalization(form, beta, learn_beta=learn_beta).double()


def expected(form: str, beta: float, values: Tensor, keys: Tensor) -> Tensor:
    """The equations for one head: values (N, D) by the keys (M, D) that count."""
    shifted = values - beta * keys.mean(0)
    return shifted if form == "beta" else shifted / (keys.var(0, correction=0) + EPSILON).sqrt()


@pytest.mark.parametrize("form", ["beta", "full"])
@pytest.mark.parametrize("masked", [False, True])
def test_queries_and_keys_have_the_statistics_of_the_keys(form: str, masked: bool) -> None:
    queries, keys = numbers(B, H, N, D), numbers(B, H, M, D, seed=1)
    mask = torch.ones(B, M, dtype=torch.bool)
    mask[1, 3:] = not masked
    found = made(form)(queries, keys, mask if masked else None)
    for example in range(B):
        for head in range(H):
            own = keys[example, head][mask[example]]
            for values, got in zip((queries, keys), found, strict=True):
                wanted = expected(form, 0.7, values[example, head], own)
                torch.testing.assert_close(got[example, head], wanted)


@pytest.mark.parametrize("form", ["beta", "full"])
def test_a_causal_token_has_the_statistics_of_the_keys_up_to_it(form: str) -> None:
    queries, keys = numbers(B, H, M, D), numbers(B, H, M, D, seed=1)
    changed, normalised = made(form)(queries, keys, None, causal=True)
    for token in range(M):
        past = keys[0, 0, : token + 1]
        wanted = expected(form, 0.7, queries[0, 0, token : token + 1], past)
        torch.testing.assert_close(changed[0, 0, token : token + 1], wanted)
        wanted = expected(form, 0.7, keys[0, 0, token : token + 1], past)
        torch.testing.assert_close(normalised[0, 0, token : token + 1], wanted)


@pytest.mark.parametrize("form", ["beta", "full"])
def test_folded_queries_give_the_softmax_of_each_tokens_own_statistics(form: str) -> None:
    queries, keys = numbers(1, 1, M, D), numbers(1, 1, M, D, seed=1)
    folded = made(form).folded(queries, keys, None)
    for token in range(M):
        past = keys[0, 0, : token + 1]
        query = expected(form, 0.7, queries[0, 0, token : token + 1], past)
        wanted = (query @ expected(form, 0.7, past, past).T).softmax(1)
        got = (folded[0, 0, token : token + 1] @ past.T).softmax(1)
        torch.testing.assert_close(got, wanted)


def test_the_variance_is_exact_far_from_the_origin() -> None:
    keys = numbers(1, 1, 200, D).float()
    apart = made("full", 1.0).float()
    near, far = (apart(keys + offset, keys + offset, None)[1] for offset in (0.0, 4096.0))
    torch.testing.assert_close(near, far, rtol=0, atol=2e-3)


def test_a_sequence_of_padding_alone_stays_finite() -> None:
    keys = numbers(1, 1, M, D)
    for values in made("full")(keys, keys, torch.zeros(1, M, dtype=torch.bool)):
        assert values.isfinite().all()


def test_small_types_are_kept_and_summed_in_float32() -> None:
    keys = torch.full((1, 1, 3000, 1), 1.0, dtype=torch.bfloat16)
    queries, _ = KeyNormalization("beta", 1.0, learn_beta=False)(keys, keys, None)
    assert queries.dtype == torch.bfloat16
    assert not queries.any(), "a sum in bfloat16 stops at 256"


def test_a_learned_beta_is_a_weight() -> None:
    layer = made("beta", learn_beta=True)
    keys = numbers(1, 1, M, D)
    layer(keys, keys, None)[0].sum().backward()
    assert isinstance(layer.beta, torch.nn.Parameter)
    torch.testing.assert_close(layer.beta.grad, -M * keys.mean(2).sum())
    assert not list(made("beta").parameters())


@pytest.mark.parametrize(
    ("form", "beta", "message"),
    [
        ("half", 0.5, "form must be 'beta' or 'full': got 'half'"),
        ("beta", -0.1, "beta must be from 0 to 10: got -0.1"),
        ("full", 10.1, "beta must be from 0 to 10: got 10.1"),
        ("full", float("nan"), "beta must be from 0 to 10: got nan"),
    ],
)
def test_bad_values(form: Any, beta: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(form, beta)
