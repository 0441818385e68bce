"""Posterised images have the levels of Pillow's."""

from __future__ import annotations

import pytest
import torch
from PIL import Image, ImageOps

from assay.attacks.corruptions.posterize import BITS, posterize


@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_equals_pillow(severity: int) -> None:
    levels = torch.arange(256).reshape(16, 16)
    found = posterize(severity=severity)(levels[None, None] / 255, ["a"], 0)
    image = ImageOps.posterize(Image.frombytes("L", (16, 16), bytes(range(256))), BITS[severity - 1])
    expected = torch.tensor(list(image.tobytes())).reshape(16, 16)
    assert torch.equal((found[0, 0] * 255).round().long(), expected)
