"""Linformer against the authors' numbers and softmax attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.models.attention.linformer import LinformerAttention
from assay.models.attention.softmax import SoftmaxAttention
from tests.models.attention.conftest import Vector
from tests.models.attention.test_memory import MATRIX, WIDTH, largest_made, largest_saved


def made(**options: object) -> LinformerAttention:
    torch.manual_seed(0)
    return LinformerAttention(12, 3, **{"tokens": 7, **options}).double().eval()  # type: ignore[arg-type]


def tokens(batch: int = 2, length: int = 7) -> Tensor:
    return torch.randn(batch, length, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_equals_the_authors_numbers(vector: Callable[[str], Vector]) -> None:
    stored, attention = vector("linformer"), made(features=4, tokens=8)
    with torch.no_grad():
        attention.e.copy_(stored["w.E"])
        out = attention.mix(stored["Q"], stored["K"], stored["V"], stored["mask"].bool())
    torch.testing.assert_close(out, stored["out"], rtol=0, atol=1e-6)


def test_is_softmax_where_e_is_the_identity() -> None:
    attention, exact = made(features=7), SoftmaxAttention(12, 3).double()
    with torch.no_grad():
        attention.e.copy_(torch.eye(7).expand(3, -1, -1))
    exact.load_state_dict({key: value for key, value in attention.state_dict().items() if key != "e"})
    torch.testing.assert_close(attention(tokens()), exact(tokens()), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("projection", "trained"), [("trained", True), ("released", False)])
def test_e_is_trained_unless_as_released(projection: str, trained: bool) -> None:
    attention = made(projection=projection)
    assert ("e" in dict(attention.named_parameters())) is trained
    assert "e" in attention.state_dict()
    assert attention.e.requires_grad is trained


def test_shorter_sequences_use_the_first_columns_and_longer_ones_are_refused() -> None:
    attention, x = made(), tokens()
    mask = torch.arange(7).expand(2, -1) < 4
    torch.testing.assert_close(attention(x, mask=mask)[:, :4], attention(x[:, :4]), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="this attention has E for 7 tokens: got a sequence of 8"):
        attention(tokens(length=8))


def test_gradient_equals_finite_differences() -> None:
    x = tokens(1, 5).requires_grad_()
    assert torch.autograd.gradcheck(made(features=3), (x,))


def test_no_matrix_of_tokens() -> None:
    attention = LinformerAttention(WIDTH, 2, features=16, tokens=512)
    assert largest_made(attention) <= MATRIX / 16
    assert largest_saved(attention) <= MATRIX / 16


def test_refuses_by_name() -> None:
    with pytest.raises(ValueError, match="features must be at least 1: got 0"):
        made(features=0)
    with pytest.raises(ValueError, match="projection must be 'trained' or 'released'"):
        made(projection="fixed")
