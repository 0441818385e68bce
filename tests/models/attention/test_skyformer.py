"""Skyformer against its formula in NumPy, and against kernelized attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.models.attention.kernelized import KernelizedAttention, kernelized
from assay.models.attention.skyformer import SkyformerAttention
from assay.models.layers.attention.nystrom import fixed_ranks
from assay.models.layers.heads import split_heads
from tests.models.attention.test_memory import MATRIX, TOKENS, WIDTH, largest_made, largest_saved


def made(**options: object) -> SkyformerAttention:
    torch.manual_seed(0)
    return SkyformerAttention(12, 3, **options).double().eval()  # type: ignore[arg-type]


def tokens(batch: int = 2, length: int = 7, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return scale * torch.randn(batch, length, 12, dtype=torch.float64, generator=generator)


def explicit(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, size: int, scale: float, gamma: float
) -> np.ndarray:
    """One head of one example, q, k, v (N, D), with a landmark matrix written out."""

    def kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.exp(-((x[:, None] - y[None]) ** 2).sum(axis=-1) / 2)

    q, k = scale * q, scale * k
    rows = [q[list(fixed_ranks("queries/0", len(q), (size + 1) // 2))]]
    rows += [k[list(fixed_ranks("keys/0", len(k), size // 2))]]
    landmarks = np.concatenate(rows)
    matrix = kernel(landmarks, landmarks) + gamma * np.eye(len(landmarks))
    d = matrix.sum(axis=1) ** -0.5
    balanced = d[:, None] * matrix * d
    inverse = balanced.T / np.abs(balanced).sum(axis=0).max()
    eye = np.eye(len(landmarks))
    for _ in range(6):
        p = balanced @ inverse
        inverse = inverse @ (13 * eye - p @ (15 * eye - p @ (7 * eye - p))) / 4
    return kernel(q, landmarks) @ (d[:, None] * inverse * d) @ kernel(landmarks, k) @ v


@pytest.mark.parametrize("landmarks", [2, 5, 8, 50])
@pytest.mark.parametrize("scale", ["head", "released"])
def test_equals_the_formula(landmarks: int, scale: str) -> None:
    attention, x = made(landmarks=landmarks, scale=scale), tokens(scale=3.0)
    factor = (32 if scale == "released" else 4) ** -0.25
    parts = [part.detach().numpy() for part in split_heads(attention.qkv(x), 3, 3)]
    found = attention.mix(*split_heads(attention.qkv(x), 3, 3), None).detach().numpy()
    for image, head in np.ndindex(2, 3):
        expected = explicit(*(part[image, head] for part in parts), landmarks, factor, 0.1)
        np.testing.assert_allclose(found[image, head], expected, rtol=0, atol=1e-10)


def test_approaches_kernelized_attention_with_all_landmarks() -> None:
    x = tokens(scale=3.0)
    torch.manual_seed(0)
    exact = KernelizedAttention(12, 3).double()(x)
    errors = [
        (made(landmarks=14, gamma=gamma, iterations=iterations)(x) - exact).abs().max().item()
        for gamma, iterations in ((0.1, 6), (1e-4, 30), (1e-8, 60))
    ]
    assert errors[0] > 100 * errors[1] > 1e4 * errors[2]
    assert errors[2] < 1e-8


def test_released_draws_are_random_in_evaluation() -> None:
    attention = made(landmarks=4, draw="released")
    assert not torch.equal(attention(tokens(length=20)), attention(tokens(length=20)))


def test_training_draws_are_random_in_training_alone() -> None:
    attention, x = made(landmarks=4, draw="training"), tokens(length=20)
    assert torch.equal(attention(x), attention(x))
    assert torch.equal(attention(x), made(landmarks=4)(x))
    attention.train()
    assert not torch.equal(attention(x), attention(x))


def test_a_normaliser_of_the_batch_makes_examples_depend_on_each_other() -> None:
    x = tokens(length=40) * torch.tensor([2.0, 8.0])[:, None, None]
    for normaliser in ("matrix", "tensor"):
        attention = made(landmarks=32, normaliser=normaliser, iterations=2)
        apart = torch.cat([attention(x[:1]), attention(x[1:])])
        changed = ((apart - attention(x)).abs().max() / apart.abs().max()).item()
        assert (changed > 1e-3) is (normaliser == "tensor")
        assert changed < 1e-12 or normaliser == "tensor"


@pytest.mark.parametrize("landmarks", [4, 16])
def test_padding_anywhere_changes_nothing(landmarks: int) -> None:
    attention, x = made(landmarks=landmarks), tokens(length=10)
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[0, [0, 3, 9]] = False
    mask[1, 5:] = False
    found = attention(x, mask=mask)
    for example in range(2):
        own = x[example : example + 1, mask[example]]
        torch.testing.assert_close(found[example, mask[example]], attention(own)[0], rtol=0, atol=1e-12)


@pytest.mark.costly
def test_gradient_equals_finite_differences() -> None:
    x = tokens(2, 6).requires_grad_()
    assert torch.autograd.gradcheck(made(landmarks=4), (x,))


def test_no_matrix_of_tokens() -> None:
    attention = SkyformerAttention(WIDTH, 2, landmarks=16)
    assert largest_made(attention) <= MATRIX / 16
    assert largest_saved(attention) <= MATRIX / 16
    assert TOKENS / 16 > 16


def test_dropout_acts_in_training_only() -> None:
    attention, x = made(dropout=0.5), tokens()
    assert torch.equal(attention(x), made()(x))
    attention.train()
    assert not torch.equal(attention(x), attention(x))


def test_works_with_halves_that_are_the_sequence() -> None:
    x = tokens()
    q = split_heads(made().qkv(x), 3, 3)
    torch.testing.assert_close(
        made(landmarks=14, gamma=1e-9, iterations=80).mix(*q, None), kernelized(*q), rtol=0, atol=1e-7
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": 1}, "landmarks must be at least 2: got 1"),
        ({"gamma": -1.0}, "gamma must be at least 0"),
        ({"iterations": 0}, "iterations must be at least 1"),
        ({"draw": "random"}, "draw must be 'fixed', 'training' or 'released': got 'random'"),
        ({"normaliser": "batch"}, "normaliser must be 'matrix' or 'tensor'"),
        ({"scale": "paper"}, "scale must be 'head' or 'released'"),
    ],
)
def test_refuses_by_name(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)
