"""Position embeddings on other grids, against the code that does it elsewhere."""

from __future__ import annotations

import pytest
import torch
from timm.layers import resample_abs_pos_embed
from torch.nn.functional import interpolate

from assay.models.layers.position_embeddings import Resizing, resize_positions, square_grid

WAYS: tuple[Resizing, ...] = ("bilinear", "bicubic", "bicubic_antialias")


@pytest.mark.parametrize(("old", "new"), [(4, 7), (7, 4), (14, 24)])
def test_antialiased_bicubic_is_timms(old: int, new: int) -> None:
    embedding = torch.randn(1, 1 + old * old, 6)
    expected = resample_abs_pos_embed(embedding, [new, new], num_prefix_tokens=1, antialias=True)
    assert torch.equal(resize_positions(embedding, (old, old), (new, new), "bicubic_antialias"), expected)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_the_others_are_without_antialiasing(mode: Resizing) -> None:
    embedding = torch.randn(1, 1 + 7 * 5, 6)
    plane = embedding[:, 1:].reshape(1, 7, 5, 6).permute(0, 3, 1, 2)
    expected = interpolate(plane, (4, 3), mode=mode).permute(0, 2, 3, 1).reshape(1, 12, 6)
    found = resize_positions(embedding, (7, 5), (4, 3), mode)
    torch.testing.assert_close(found[:, 1:], expected)
    assert not torch.allclose(found, resize_positions(embedding, (7, 5), (4, 3), "bicubic_antialias"))


@pytest.mark.parametrize("how", WAYS)
def test_the_class_token_and_the_own_grid_stay(how: Resizing) -> None:
    embedding = torch.randn(1, 17, 3)
    assert torch.equal(resize_positions(embedding, (4, 4), (9, 9), how)[:, :1], embedding[:, :1])
    assert resize_positions(embedding, (4, 4), (4, 4), how) is embedding


@pytest.mark.parametrize("shape", [(1, 198, 3), (1, 196, 3), (2, 17, 3), (17, 3), (1, 1, 3)])
def test_what_is_no_class_token_and_square_grid_has_none(shape: tuple[int, ...]) -> None:
    assert square_grid(shape) is None
    assert square_grid((1, 197, 3)) == (14, 14)
