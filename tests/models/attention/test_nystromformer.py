"""Nystromformer against the authors' numbers and softmax attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from assay.models.attention.nystromformer import NystromformerAttention, nystrom
from assay.models.layers.heads import attend
from tests.models.attention.conftest import Vector
from tests.models.attention.test_memory import MATRIX, WIDTH, largest_made, largest_saved


def made(**options: object) -> NystromformerAttention:
    torch.manual_seed(0)
    return NystromformerAttention(12, 3, **options).double().eval()  # type: ignore[arg-type]


def tokens(batch: int = 2, length: int = 7) -> Tensor:
    return torch.randn(batch, length, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_equals_the_authors_numbers(vector: Callable[[str], Vector]) -> None:
    stored = vector("nystrom")
    operands = stored["Q"], stored["K"], stored["V"], stored["mask"].bool()
    count = int(stored["num_landmarks"])
    out = nystrom(*operands, landmarks=count, normaliser="tensor", counts_padding=True)
    torch.testing.assert_close(out, stored["out"], rtol=0, atol=2e-6)
    for other in ({"normaliser": "tensor"}, {"counts_padding": True}):
        changed = nystrom(*operands, landmarks=count, **other)  # type: ignore[arg-type]
        assert (changed - stored["out"]).abs().max() > 1e-3


def test_is_softmax_with_a_segment_for_each_token() -> None:
    generator = torch.Generator().manual_seed(0)
    q, v = 2 * torch.randn(2, 2, 3, 7, 4, dtype=torch.float64, generator=generator)
    exact = attend(q, q, v, None, 0.0)
    errors = [
        (nystrom(q, q, v, landmarks=7, iterations=steps) - exact).abs().max().item() for steps in (2, 4, 30)
    ]
    assert errors[0] > 2 * errors[1] > 1e3 * errors[2]
    assert errors[2] < 1e-10


@pytest.mark.parametrize(("length", "landmarks"), [(7, 3), (13, 4), (5, 128), (1, 2)])
def test_any_length(length: int, landmarks: int) -> None:
    assert made(landmarks=landmarks)(tokens(length=length)).isfinite().all()


@pytest.mark.parametrize("kernel", [0, 3])
@pytest.mark.parametrize("landmarks", [3, 8])
def test_padding_at_the_end_changes_nothing(landmarks: int, kernel: int) -> None:
    attention, x = made(landmarks=landmarks, kernel=kernel), tokens(length=10)
    mask = torch.arange(10).expand(2, -1) < torch.tensor([[10], [6]])
    found = attention(x, mask=mask)
    torch.testing.assert_close(found[1:, :6], attention(x[1:, :6]), rtol=0, atol=1e-12)
    released = made(landmarks=landmarks, kernel=kernel, padding="released")
    assert not torch.allclose(released(x, mask=mask)[1:, :6], released(x[1:, :6]), atol=1e-4)


def test_convolution_is_that_of_each_head() -> None:
    attention, x = made(kernel=3), tokens()
    plain = made()
    plain.load_state_dict({k: v for k, v in attention.state_dict().items() if k != "conv.weight"})
    _, _, values = attention.qkv(x).reshape(2, 7, 3, 3, 4).permute(2, 0, 3, 1, 4)
    padded = torch.nn.functional.pad(values, (0, 0, 1, 1))
    taps = attention.conv.weight.view(3, 3)  # type: ignore[union-attr]
    added = sum(taps[None, :, tap, None, None] * padded[:, :, tap : tap + 7] for tap in range(3))
    expected = plain(x) + added.transpose(1, 2).reshape(2, 7, 12) @ plain.proj.weight.T  # type: ignore[union-attr]
    torch.testing.assert_close(attention(x), expected, rtol=0, atol=1e-12)


def test_convolution_runs_in_low_precision() -> None:
    attention = made(kernel=5).bfloat16()
    assert attention(tokens().bfloat16()).dtype == torch.bfloat16


@pytest.mark.costly
@pytest.mark.parametrize("kernel", [0, 3])
def test_gradient_equals_finite_differences(kernel: int) -> None:
    x = tokens(2, 6).requires_grad_()
    assert torch.autograd.gradcheck(made(landmarks=3, kernel=kernel), (x,))


def test_no_matrix_of_tokens() -> None:
    attention = NystromformerAttention(WIDTH, 2, landmarks=16)
    assert largest_made(attention) <= MATRIX / 16
    assert largest_saved(attention) <= MATRIX / 16


@pytest.mark.parametrize("kernel", [2, -1])
def test_kernel_must_be_odd(kernel: int) -> None:
    with pytest.raises(ValueError, match="kernel must be odd, or 0 for no convolution"):
        made(kernel=kernel)
