"""Frost photographs of the installed package `imagecorruptions-imaug`, which is not imported.

They are not in this repository. Each is enlarged to be a tenth larger than itself or the image.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

PACKAGE = "imagecorruptions"
TEXTURES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")
MARGIN = 1.1


@functools.lru_cache(maxsize=2 * len(TEXTURES))
def frost_texture(number: int, height: int, width: int) -> Tensor:
    """Frost photograph, large enough for images of the given size.

    Args:
        number: 0 to 5.
        height: Height of the images in pixels.
        width: Width of the images in pixels.

    Returns:
        (3, >= H + 1, >= W + 1), RGB, uint8.

    Raises:
        ValueError: The package is not installed.
    """
    with Image.open(folder() / TEXTURES[number]) as file:
        pixels = torch.from_numpy(np.array(file.convert("RGB"))).permute(2, 0, 1)
    rows, columns = pixels.shape[-2:]
    scale = max(1.0, height / rows, width / columns) * MARGIN
    size = max(math.ceil(rows * scale), height + 1), max(math.ceil(columns * scale), width + 1)
    enlarged = interpolate(pixels[None].float(), size=size, mode="bicubic", align_corners=False)
    return enlarged[0].round_().clamp_(0, 255).to(torch.uint8)


def folder() -> Path:
    """The package's folder of photographs.

    Raises:
        ValueError: The package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "frost" / TEXTURES[0]).is_file():
            return Path(place) / "frost"
    raise ValueError(
        "frost needs the photographs of the package imagecorruptions-imaug, which is not installed on this"
        " worker: pip install imagecorruptions-imaug"
    )
