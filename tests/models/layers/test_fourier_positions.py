from __future__ import annotations

import math

import pytest
import torch
from timm.models.xcit import PositionalEncodingFourier

from assay.models.layers.fan import FourierPositions, waves


@pytest.mark.parametrize("grid", [(14, 14), (3, 7), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_timms_encoding_with_its_weights(grid: tuple[int, int], dtype: torch.dtype) -> None:
    theirs = PositionalEncodingFourier(dim=24).to(dtype)
    ours = FourierPositions(24).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    expected = theirs(1, *grid).flatten(2).transpose(1, 2)
    assert ours(grid).dtype == dtype
    torch.testing.assert_close(ours(grid), expected, rtol=0, atol=1e-5)


def test_waves_are_the_stated_angles() -> None:
    table = waves(7)
    assert (table.shape, table.dtype) == ((7, 32), torch.float32)
    angle = 2 * math.pi * 3 / 7 / 10_000 ** (10 / 32)  # of place 3, sixth pair
    assert table[2, 10].item() == pytest.approx(math.sin(angle), abs=1e-5)
    assert table[2, 11].item() == pytest.approx(math.cos(angle), abs=1e-5)


def test_every_place_of_a_grid_has_an_encoding_of_its_own() -> None:
    encoding = FourierPositions(24)((14, 14))[0]
    distances = torch.cdist(encoding, encoding) + torch.eye(196)
    assert distances.min() > 1e-3
