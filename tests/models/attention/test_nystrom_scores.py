"""The Nystrom method on raw scores against its formula and softmax attention."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from assay.models.attention.nystrom_scores import NystromScoresAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.nystrom import fixed_ranks, iterative_inverse
from assay.models.layers.heads import split_heads
from tests.models.attention.test_memory import MATRIX, WIDTH, largest_made, largest_saved


def made(**options: object) -> NystromScoresAttention:
    torch.manual_seed(0)
    return NystromScoresAttention(12, 3, **options).double().eval()  # type: ignore[arg-type]


def tokens(length: int = 7, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return scale * torch.randn(2, length, 12, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("gamma", [0.0, 0.1])
def test_equals_the_formula(gamma: float) -> None:
    attention = made(landmarks=5, gamma=gamma)
    q, k, v = split_heads(attention.qkv(tokens()), 3, 3)
    scale = 4**-0.25
    x = torch.cat(
        [q[:, :, list(fixed_ranks("queries/0", 7, 3))], k[:, :, list(fixed_ranks("keys/0", 7, 2))]], 2
    )
    matrix = (scale * x @ (scale * x).mT).exp() + gamma * torch.eye(5, dtype=torch.float64)
    d = matrix.sum(dim=-1).rsqrt()
    balanced = iterative_inverse(d[..., None] * matrix * d[..., None, :], 6, "matrix")
    inverse = d[..., None] * balanced * d[..., None, :]
    approximated = (q @ x.mT / math.sqrt(4)).exp() @ inverse @ (x @ k.mT / math.sqrt(4)).exp()
    expected = approximated @ v / approximated.sum(dim=-1, keepdim=True)
    torch.testing.assert_close(attention.mix(q, k, v, None), expected, rtol=0, atol=1e-10)


def test_approaches_softmax_with_all_landmarks() -> None:
    torch.manual_seed(0)
    exact = SoftmaxAttention(12, 3).double()(tokens(scale=3.0))
    errors = [
        (made(gamma=gamma, iterations=iterations)(tokens(scale=3.0)) - exact).abs().max().item()
        for gamma, iterations in ((0.1, 6), (1e-4, 30), (1e-8, 60))
    ]
    assert errors[0] > 10 * errors[1] > 1e3 * errors[2]
    assert errors[2] < 1e-8


def test_padding_anywhere_changes_nothing() -> None:
    attention, x = made(landmarks=6), tokens(10)
    mask = torch.ones(2, 10, dtype=torch.bool)
    mask[0, [0, 3, 9]] = False
    mask[1, 2:] = False
    found = attention(x, mask=mask)
    for example in range(2):
        own = attention(x[example : example + 1, mask[example]])[0]
        torch.testing.assert_close(found[example, mask[example]], own, rtol=0, atol=1e-11)


def test_scores_far_beyond_the_range_of_exp_give_numbers() -> None:
    x = tokens(scale=300.0).requires_grad_()
    output = made(landmarks=4)(x)
    assert output.isfinite().all()
    (gradient,) = torch.autograd.grad(output.square().sum(), x)
    assert gradient.isfinite().all()


@pytest.mark.costly
def test_gradient_equals_finite_differences() -> None:
    x = tokens(6).requires_grad_()
    assert torch.autograd.gradcheck(made(landmarks=4), (x,))


def test_no_matrix_of_tokens() -> None:
    attention = NystromScoresAttention(WIDTH, 2, landmarks=16)
    assert largest_made(attention) <= MATRIX / 16
    assert largest_saved(attention) <= MATRIX / 16


def test_refuses_by_name() -> None:
    with pytest.raises(ValueError, match="draw must be 'fixed', 'training' or 'released'"):
        made(draw="paper")
