"""Performer against the formula in NumPy, and its features against the kernel that they estimate."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from assay.models.attention.performer import (
    CHUNK,
    EPSILON,
    PerformerAttention,
    orthogonal_features,
)
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.vit import vit
from assay.workers.evaluation.engine.probe import probe

WIDTH, HEADS = 12, 3


def positive_features(points: Tensor, vectors: Tensor) -> Tensor:
    """phi(x) without stabiliser and epsilon, (..., N, M): E[phi(q) . phi(k)] = exp(q . k / sqrt(D)).

    Queries or keys (..., N, D) are divided by D^1/4 here; vectors come from `orthogonal_features`. Overflows
    where exp(q . k / sqrt(D)) is far beyond the type's range.
    """
    scaled = points * points.shape[-1] ** -0.25
    halves = scaled.square().sum(dim=-1, keepdim=True) / 2
    exponents: Tensor = scaled @ vectors.to(points.dtype).T - halves
    return exponents.exp() / math.sqrt(len(vectors))


def made(**parameters: Any) -> PerformerAttention:
    torch.manual_seed(0)
    return PerformerAttention(WIDTH, HEADS, **parameters).double().eval()


def tokens(count: int = 7, batch: int = 2) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return torch.randn(batch, count, WIDTH, generator=generator, dtype=torch.float64)


def explicit(attention: PerformerAttention, x: Tensor, mask: Tensor | None = None) -> np.ndarray:
    """The released formula, one example and head after the other, over the N x N products of features."""
    weights = {name: value.detach().numpy() for name, value in attention.state_dict().items()}
    size = WIDTH // HEADS
    projected = x.numpy() @ weights["qkv.weight"].T + weights["qkv.bias"]
    output = np.zeros(x.shape)
    exponents: list[tuple[int, slice, np.ndarray, np.ndarray, np.ndarray]] = []
    for example in range(len(x)):
        for head in range(HEADS):
            columns = slice(head * size, (head + 1) * size)
            q, k, v = (
                projected[example, :, part * WIDTH : (part + 1) * WIDTH][:, columns] for part in range(3)
            )
            exponents.append((example, columns, q * attention.scale, k * attention.scale, v))
    largest_of_all = max((k @ weights["features"].T).max() for _, _, _, k, _ in exponents)
    for example, columns, q, k, v in exponents:
        seen = np.ones(len(k), dtype=bool) if mask is None else mask[example].numpy()
        scores, keys = q @ weights["features"].T, (k @ weights["features"].T)[seen]
        phi_q = np.exp(scores - (q**2).sum(1, keepdims=True) / 2 - scores.max(1, keepdims=True)) + EPSILON
        largest = keys.max() if attention.by_example else largest_of_all
        phi_k = np.exp(keys - (k[seen] ** 2).sum(1, keepdims=True) / 2 - largest) + EPSILON
        matrix = phi_q @ phi_k.T
        output[example, :, columns] = matrix / matrix.sum(axis=1, keepdims=True) @ v[seen]
    return output @ weights["proj.weight"].T + weights["proj.bias"]


@pytest.mark.parametrize("parameters", [{}, {"features": 256}, {"scaling": "twice"}, {"stabilizer": "batch"}])
def test_equals_the_formula(parameters: dict[str, Any]) -> None:
    attention, x = made(**parameters), 2 * tokens()
    np.testing.assert_allclose(attention(x).detach(), explicit(attention, x), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("present", [[0, 1, 2, 3], [3, 4, 5, 6], [0, 2, 5]])
def test_masked_keys_have_no_weight_and_no_say_in_the_stabiliser(present: list[int]) -> None:
    attention, x = made(), tokens()
    mask = torch.zeros(2, 7, dtype=torch.bool)
    mask[:, present] = True
    x = torch.where(mask[..., None], x, 50 * x)
    expected = explicit(attention, x, mask)
    np.testing.assert_allclose(attention(x, mask=mask).detach(), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("count", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_a_causal_row_is_the_plain_form_on_its_past(count: int) -> None:
    attention, whole = made(causal=True), made()
    x = 3 * tokens(count, batch=1)
    rows = attention(x)
    for last in {0, count // 2, count - 1}:
        torch.testing.assert_close(rows[:, last], whole(x[:, : last + 1])[:, last], rtol=1e-10, atol=1e-12)


def test_a_causal_mask_may_have_holes_and_begin_with_padding() -> None:
    attention, x = made(causal=True), tokens(CHUNK + 9)
    mask = torch.ones(2, CHUNK + 9, dtype=torch.bool)
    mask[0, :3] = mask[0, 20:30] = mask[1, CHUNK - 2 :: 2] = False
    filled = torch.where(mask[..., None], x, 50 * x)
    for example in range(2):
        own = mask[example]
        expected = attention(x[example : example + 1, own])
        actual = attention(filled, mask=mask)[example : example + 1, own]
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_gradient_equals_finite_differences(causal: bool) -> None:
    attention = made(causal=causal, features=6)
    x = tokens(5, batch=1).requires_grad_()
    assert torch.autograd.gradcheck(attention, (x,))


def test_features_have_the_directions_and_lengths_of_normal_vectors() -> None:
    generator = torch.Generator().manual_seed(1)
    vectors = torch.stack([orthogonal_features(8, 8, generator) for _ in range(4000)]).double()
    products = vectors @ vectors.transpose(1, 2)
    off = products - torch.diag_embed(products.diagonal(dim1=1, dim2=2))
    assert off.abs().max() < 1e-5
    moments = vectors.flatten(0, 1)
    assert moments.mean(dim=0).abs().max() < 5 / math.sqrt(len(moments))
    assert vectors[:, 0].mean(dim=0).abs().max() < 5 / math.sqrt(4000)  # of the first of each block too
    torch.testing.assert_close(moments.T @ moments / len(moments), torch.eye(8).double(), atol=0.05, rtol=0)


def test_the_features_estimate_the_softmax_kernel_without_bias() -> None:
    generator = torch.Generator().manual_seed(2)
    q, k = (torch.randn(5, 8, generator=generator, dtype=torch.float64) for _ in range(2))
    exact = (q @ k.T / math.sqrt(8)).exp()
    estimates = torch.stack(
        [
            positive_features(q, vectors) @ positive_features(k, vectors).T
            for vectors in (orthogonal_features(16, 8, generator).double() for _ in range(3000))
        ]
    )
    errors = (estimates.mean(dim=0) - exact).abs() / (estimates.std(dim=0) / math.sqrt(3000))
    assert errors.max() < 4.5  # standard errors, of 25 estimates


@pytest.mark.parametrize("causal", [False, True])
def test_comes_nearer_to_softmax_with_more_features(causal: bool) -> None:
    torch.manual_seed(3)
    softmax, x = SoftmaxAttention(WIDTH, HEADS, causal=causal).double(), 0.5 * tokens(20)
    errors = []
    with torch.no_grad():
        for features in (16, 256, 4096):
            attention = made(features=features, causal=causal)
            attention.load_state_dict(softmax.state_dict(), strict=False)
            errors.append(float((attention(x) - softmax(x)).square().mean().sqrt()))
        assert errors[0] > 1.5 * errors[1] > 1.5 * 1.5 * errors[2]
        assert errors[2] < 0.01 * float(softmax(x).std())


@torch.no_grad()
def test_scaled_twice_it_estimates_softmax_of_a_smaller_logit() -> None:
    attention = made(features=8192, scaling="twice")
    x, size = tokens(20), WIDTH // HEADS
    softmax = SoftmaxAttention(WIDTH, HEADS).double()
    softmax.load_state_dict(
        {name: value for name, value in attention.state_dict().items() if name != "features"}
    )
    far = float((softmax(x) - attention(x)).abs().max())
    for part in (softmax.qkv.weight, softmax.qkv.bias):
        part[:WIDTH] /= math.sqrt(size)  # logits q . k / D
    assert float((softmax(x) - attention(x)).abs().max()) < 0.2 * far


@pytest.mark.parametrize("stabilizer", ["example", "batch"])
def test_the_released_stabiliser_depends_on_the_batch_and_the_probe_says_so(stabilizer: str) -> None:
    torch.manual_seed(0)
    mechanism = functools.partial(PerformerAttention, stabilizer=stabilizer)
    model = vit(5, 3, image_size=16, patch_size=4, width=24, heads=2, depth=1, attention=mechanism).eval()
    model.blocks[0].norm1 = nn.Identity()  # so that the images' keys have different lengths
    torch.nn.init.normal_(model.blocks[0].attn.qkv.weight, std=0.7)
    images = torch.rand(6, 3, 16, 16) * torch.tensor([1.0, 0.1, 0.3, 4.0, 1.0, 2.0])[:, None, None, None]
    with torch.no_grad():
        found = probe(model, images)
    assert ("batch_dependent" in found) == (stabilizer == "batch")
    assert "random_outputs" not in found


def test_draws_are_those_of_torch_at_construction_and_stored() -> None:
    assert torch.equal(made().features, made().features)
    torch.manual_seed(5)
    one, other = PerformerAttention(WIDTH, HEADS), PerformerAttention(WIDTH, HEADS)
    assert not torch.equal(one.features, other.features)  # two layers of a model
    assert "features" in one.state_dict()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"features": 0}, "features must be from 1 to 8192: got 0"),
        ({"scaling": "thrice"}, "scaling must be 'once' or 'twice': got 'thrice'"),
        ({"stabilizer": "all"}, "stabilizer must be 'example' or 'batch': got 'all'"),
    ],
)
def test_refuses_by_name(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PerformerAttention(WIDTH, HEADS, **parameters)
