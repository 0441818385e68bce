"""The frame of attention without a softmax: projections, dtypes, padding and refusals."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from assay.models.layers.attention.projected_attention import (
    ProjectedAttention,
    without_padding,
)

DIM, HEADS = 6, 2


class Kept(ProjectedAttention):
    """Answers the values, and keeps what it was given."""

    def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        self.given = (queries, keys, values, mask)
        return values * 2


def test_rows_of_the_projection_are_queries_keys_and_values_head_by_head() -> None:
    layer = Kept(DIM, HEADS, prefix_tokens=0, dropout=0.0).double()
    x, mask = torch.randn(2, 4, DIM, dtype=torch.float64), torch.ones(2, 4, dtype=torch.bool)
    answer = layer(x, mask=mask)
    projected = x @ layer.qkv.weight.T + layer.qkv.bias
    for part, found in enumerate(layer.given[:3]):
        assert isinstance(found, Tensor)
        assert found.shape == (2, HEADS, 4, DIM // HEADS)
        for head in range(HEADS):
            first = part * DIM + head * (DIM // HEADS)
            torch.testing.assert_close(found[:, head], projected[..., first : first + DIM // HEADS])
    assert layer.given[3] is mask
    values = projected[..., 2 * DIM :]
    torch.testing.assert_close(answer, 2 * values @ layer.proj.weight.T + layer.proj.bias)


@pytest.mark.parametrize(
    ("dtype", "inside"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_it_mixes_in_float32_at_least_and_answers_in_the_layers_dtype(
    dtype: torch.dtype, inside: torch.dtype
) -> None:
    layer = Kept(DIM, HEADS, prefix_tokens=0, dropout=0.0).to(dtype)
    assert layer(torch.zeros(1, 3, DIM, dtype=dtype)).dtype == dtype
    assert layer.given[0].dtype == inside


def test_autocast_does_not_reach_the_mixture() -> None:
    class Product(Kept):
        def mix(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
            self.product = queries @ keys.transpose(-1, -2)
            return values

    layer = Product(DIM, HEADS, prefix_tokens=0, dropout=0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        layer(torch.zeros(1, 3, DIM))
    assert layer.product.dtype == torch.float32


def test_rows_of_padding_become_zeros_even_where_they_are_not_finite() -> None:
    values = torch.ones(2, 1, 3, 2)
    values[0, :, 2] = torch.nan
    mask = torch.tensor([[True, True, False], [False, True, True]])
    assert without_padding(values, mask).sum(3).squeeze(1).tolist() == [[2, 2, 0], [0, 2, 2]]
    assert without_padding(values, None) is values
