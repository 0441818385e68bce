"""Pixelate by products of matrices: Pillow's levels."""

from __future__ import annotations

import pytest
import torch
from PIL import Image

from assay.attacks.corruptions.imaging.pillow import each_picture
from assay.attacks.corruptions.pixelate import SCALES, pixelate, shrunk
from tests.support.emulated_device.device import emulated_device

SIZES = [(1, 1), (2, 3), (5, 5), (33, 90), (97, 160), (224, 224)]


@pytest.mark.sampled
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_levels_are_those_of_pillow(size: tuple[int, int], channels: int) -> None:
    levels = torch.randint(0, 256, (2, channels, *size), generator=torch.Generator().manual_seed(0)).float()
    for constants, scales in SCALES.items():
        for severity, scale in enumerate(scales, 1):
            rows, columns = (max(1, int(side * scale)) for side in size)

            def resized(picture: Image.Image, to: tuple[int, int] = (columns, rows)) -> Image.Image:
                return picture.resize(to, Image.Resampling.BOX)

            small = each_picture(levels, resized)
            assert torch.equal(shrunk(levels, rows, columns), small)
            whole = each_picture(small, lambda picture: picture.resize(size[::-1], Image.Resampling.BOX))
            apply = pixelate(severity=severity, constants=constants).apply
            assert torch.equal(apply(levels), whole)
            with emulated_device() as device:
                assert torch.equal(apply(levels.to(device.device)).cpu(), whole)
                device.forget_counts()
                apply(levels.to(device.device))
                assert not device.waits
                assert device.uploads.total() == 1  # the levels
