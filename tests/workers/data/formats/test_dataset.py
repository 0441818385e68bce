from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from assay.workers.data.formats.dataset import Levels, checked_indices, checked_size, resize
from tests.support.emulated_device.device import emulated_device


def test_resize_is_bilinear_with_half_pixel_centres() -> None:
    pixels = torch.tensor([[[[0.0, 1.0]] * 2]])  # (1, 1, 2, 2), columns 0 and 1
    assert resize(pixels, 4)[0, 0, 0].tolist() == [0.0, 0.25, 0.75, 1.0]


def test_upsampling_equals_plain_bilinear_and_downsampling_is_anti_aliased() -> None:
    pixels = torch.rand(3, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    plain = functional.interpolate(pixels, size=(19, 19), mode="bilinear", align_corners=False)
    torch.testing.assert_close(resize(pixels, 19), plain, rtol=0, atol=1e-6)
    checkers = torch.tensor([0.0, 1.0]).repeat(8, 4)[None, None]  # (1, 1, 8, 8), alternating columns
    assert resize(checkers, 2).std() < 0.1  # without anti-aliasing it would pick single columns


def test_resize_stays_in_range_and_handles_no_image() -> None:
    assert resize(torch.ones(1, 1, 8, 8), 37).max() <= 1.0
    assert resize(torch.empty(0, 3, 8, 8), 5).shape == (0, 3, 5, 5)


def test_checks_name_the_value() -> None:
    with pytest.raises(IndexError, match="index 3 is outside"):
        checked_indices([0, 3], 3)
    with pytest.raises(IndexError, match="index -1"):
        checked_indices([-1], 3)
    with pytest.raises(ValueError, match="got 0"):
        checked_size(0)


def test_pixels_have_the_same_bits_on_a_device_that_multiplies_by_reciprocals() -> None:
    rounded = 0
    for white in range(1, 256):
        levels = torch.arange(white + 1, dtype=torch.uint8).view(1, 1, 1, -1)
        here = Levels(levels, white).pixels()
        assert torch.equal(here, levels.float() / white)
        with emulated_device() as device:
            there = Levels(levels.to(device.device), white).pixels()
            rounded += int((there.cpu() != (levels.to(device.device).float() / white).cpu()).sum())
            assert torch.equal(there.cpu(), here)
    assert rounded > 1000, "the device of the test rounds a quotient by a number as the CPU does"
