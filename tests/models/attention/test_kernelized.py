"""Kernelized attention against the authors' numbers, its formula, and itself in parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.models.attention import kernelized as module
from assay.models.attention.kernelized import KernelizedAttention, kernelized
from tests.models.attention.conftest import Vector
from tests.models.attention.test_memory import MATRIX, TOKENS, WIDTH, largest_made


def made(**options: object) -> KernelizedAttention:
    torch.manual_seed(0)
    return KernelizedAttention(12, 3, **options).double().eval()  # type: ignore[arg-type]


def tokens(batch: int = 2, length: int = 7) -> Tensor:
    return torch.randn(batch, length, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_equals_the_authors_numbers(vector: Callable[[str], Vector]) -> None:
    stored = vector("kernelized")
    out = kernelized(stored["Q"], stored["K"], stored["V"], stored["mask"].bool())
    torch.testing.assert_close(out, stored["out64"], rtol=0, atol=1e-9)


def test_equals_the_formula() -> None:
    attention, x = made(), tokens()
    projected = attention.qkv(x).detach().numpy().reshape(2, 7, 3, 3, 4)  # batch, token, part, head, feature
    output = np.zeros((2, 7, 3, 4))
    for image, i, j, head in np.ndindex(2, 7, 7, 3):
        q, k, v = projected[image, i, 0, head], projected[image, j, 1, head], projected[image, j, 2, head]
        output[image, i, head] += np.exp(-((q - k) ** 2).sum() / 2 / np.sqrt(4)) * v
    expected = attention.proj(torch.from_numpy(output.reshape(2, 7, 12)))
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_rows_are_not_normalised() -> None:
    twice = torch.cat([tokens(), tokens()], dim=1)
    attention = made()
    with torch.no_grad():
        once = attention(tokens()) - attention.proj.bias
        again = attention(twice)[:, :7] - attention.proj.bias
    torch.testing.assert_close(again, 2 * once, rtol=1e-12, atol=0)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_parts_give_the_same(causal: bool, masked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = made(causal=causal), tokens()
    mask = torch.arange(7).expand(2, -1) < torch.tensor([[7], [4]]) if masked else None
    whole = attention(x, mask=mask).detach()
    monkeypatch.setattr(module, "QUERIES_AT_A_TIME", 3)
    with torch.no_grad():
        torch.testing.assert_close(attention(x, mask=mask), whole, rtol=0, atol=1e-13)


@pytest.mark.parametrize("causal", [False, True])
def test_no_matrix_of_tokens_at_inference(causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUERIES_AT_A_TIME", TOKENS // 16)
    assert largest_made(KernelizedAttention(WIDTH, 2, causal=causal).eval()) <= MATRIX / 16


@pytest.mark.parametrize("causal", [False, True])
def test_gradient_equals_finite_differences(causal: bool) -> None:
    x = tokens(1, 5).requires_grad_()
    assert torch.autograd.gradcheck(made(causal=causal), (x,))


def test_a_causal_token_has_what_the_last_of_a_sequence_has() -> None:
    causal, plain, x = made(causal=True), made(), tokens()
    for count in range(1, 8):
        torch.testing.assert_close(causal(x)[:, count - 1], plain(x[:, :count])[:, -1], rtol=0, atol=1e-12)


@pytest.mark.costly
def test_dropout_acts_on_the_kernel_in_training_only() -> None:
    attention, x = made(dropout=0.5), tokens()
    evaluated = attention(x)
    assert torch.equal(evaluated, made()(x))
    attention.train()
    assert not torch.equal(attention(x), attention(x))
    mean = torch.stack([attention(x) for _ in range(2000)]).mean(dim=0)
    torch.testing.assert_close(mean, evaluated, rtol=0, atol=0.1)
