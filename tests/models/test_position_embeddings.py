"""Position embeddings on other grids, against the code that does it elsewhere."""

from __future__ import annotations

import pytest
import torch
from timm.layers import resample_abs_pos_embed
from torch.nn.functional import interpolate

from models.position_embeddings import Resizing, resize_positions, side_of
from models.transformer import VisionTransformer
from models.vit import vit

WAYS: tuple[Resizing, ...] = ("bilinear", "bicubic", "bicubic_antialias")


@pytest.mark.parametrize(("old", "new"), [(4, 7), (7, 4), (14, 24)])
def test_antialiased_bicubic_is_timms(old: int, new: int) -> None:
    embedding = torch.randn(1, 1 + old * old, 6)
    expected = resample_abs_pos_embed(embedding, [new, new], num_prefix_tokens=1, antialias=True)
    assert torch.equal(resize_positions(embedding, new, "bicubic_antialias"), expected)


def test_bicubic_is_without_antialiasing() -> None:
    embedding = torch.randn(1, 1 + 49, 6)
    plane = embedding[:, 1:].reshape(1, 7, 7, 6).permute(0, 3, 1, 2)
    expected = interpolate(plane, (4, 4), mode="bicubic").permute(0, 2, 3, 1).reshape(1, 16, 6)
    found = resize_positions(embedding, 4, "bicubic")
    torch.testing.assert_close(found[:, 1:], expected)
    assert not torch.allclose(found, resize_positions(embedding, 4, "bicubic_antialias"))


def test_bilinear_is_what_our_transformer_does_on_another_grid() -> None:
    model = vit(5, 3, image_size=16, patch_size=4, width=12, depth=1, heads=3)
    assert isinstance(model, VisionTransformer)
    expected = model._positions((6, 6))
    assert torch.equal(resize_positions(model.pos_embed.detach(), 6, "bilinear"), expected)


@pytest.mark.parametrize("how", WAYS)
def test_the_class_token_and_the_own_grid_stay(how: Resizing) -> None:
    embedding = torch.randn(1, 17, 3)
    assert torch.equal(resize_positions(embedding, 9, how)[:, :1], embedding[:, :1])
    torch.testing.assert_close(resize_positions(embedding, 4, how), embedding)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_halves_are_resized_in_float32(dtype: torch.dtype) -> None:
    embedding = torch.randn(1, 17, 3).to(dtype)
    found = resize_positions(embedding, 6, "bicubic")
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(found.float(), resize_positions(embedding.float(), 6, "bicubic"))


@pytest.mark.parametrize("shape", [(1, 198, 3), (1, 196, 3), (2, 17, 3), (17, 3), (1, 1, 3)])
def test_what_is_no_class_token_and_square_grid_is_refused(shape: tuple[int, ...]) -> None:
    assert side_of(shape) is None
    with pytest.raises(ValueError, match="no embedding of a class token and a square grid"):
        resize_positions(torch.zeros(shape), 4, "bilinear")
    assert side_of((1, 197, 3)) == 14
