"""JPEG in tensors: Pillow's levels, at every size and quality."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.jpeg import coloured, in_tensors, recompressed
from assay.attacks.corruptions.jpeg_compression import QUALITIES
from tests.support.emulated_device.device import EmulatedTensor, emulated_device

SIZES = [(1, 1), (2, 3), (4, 4), (4, 6), (5, 4), (8, 8), (16, 17), (31, 15), (33, 90)]
USED = sorted({85, *itertools.chain(*QUALITIES.values())})


@pytest.mark.sampled
@pytest.mark.parametrize("quality", USED)
def test_photographs_have_the_levels_of_pillow(quality: int, photographs: Tensor) -> None:
    assert torch.equal(in_tensors(photographs, quality), recompressed(photographs, quality))
    grey = photographs.mean(1, keepdim=True).round()
    assert torch.equal(in_tensors(grey, quality), recompressed(grey, quality))


@pytest.mark.sampled
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("quality", [1, 25, 50, 85, 99, 100])
def test_any_size_and_the_wildest_levels_will_do(quality: int, size: tuple[int, int]) -> None:
    chance = torch.Generator().manual_seed(0)
    noise = torch.randint(0, 256, (2, 3, *size), generator=chance).float()
    black_and_white = torch.randint(0, 2, (2, 3, *size), generator=chance).float() * 255
    board = torch.zeros(1, 3, *size)
    board[..., ::2, 1::2] = board[..., 1::2, ::2] = 255
    for levels in (noise, black_and_white, board):
        assert torch.equal(in_tensors(levels, quality), recompressed(levels, quality))


def test_every_chroma_gives_the_colour_of_libjpeg() -> None:
    blue, red = torch.meshgrid(torch.arange(-128, 128), torch.arange(-128, 128), indexing="ij")
    shares = ((0, 91881), (-22554, -46802), (116130, 0))
    added = torch.stack([of_blue * blue + of_red * red + 2**15 >> 16 for of_blue, of_red in shares])
    chroma = torch.stack([blue, red]).float()[None]
    for level in (0, 1, 100, 255):
        luminance = torch.full((1, 1, 256, 256), level, dtype=torch.uint8)
        assert torch.equal(coloured(luminance, chroma)[0].long(), (level + added).clamp(0, 255))


def test_a_device_has_the_tensors(photographs: Tensor) -> None:
    with emulated_device() as device:
        levels = photographs.to(device.device)
        recompressed(levels, 25)
        device.forget_counts()
        found = recompressed(levels, 25)
        assert isinstance(found, EmulatedTensor)
        assert not device.waits
        assert not device.uploads  # the tables are there from the first time
        assert torch.equal(found.cpu(), recompressed(photographs, 25))
