"""Frost photographs, which are not in this repository: from a folder, or from `imagecorruptions-imaug`.

The folder `frost-photographs` below ASSAY_DATA_ROOT goes first; the package is not imported. Each photograph
is enlarged to be a tenth larger than itself or the image.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import math
import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

FOLDER = "frost-photographs"
PACKAGE = "imagecorruptions"
TEXTURES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")
MARGIN = 1.1


def frost_texture(number: int, height: int, width: int) -> Tensor:
    """Frost photograph, large enough for images of the given size.

    Args:
        number: 0 to 5.
        height: Height of the images in pixels.
        width: Width of the images in pixels.

    Returns:
        (3, >= H + 1, >= W + 1), RGB, uint8.

    Raises:
        ValueError: There are no photographs.
    """
    path = folder() / TEXTURES[number]
    return _enlarged(path, path.stat().st_mtime_ns, height, width)


@functools.lru_cache(maxsize=2 * len(TEXTURES))
def _enlarged(path: Path, _changed: int, height: int, width: int) -> Tensor:
    with Image.open(path) as file:
        pixels = torch.from_numpy(np.array(file.convert("RGB"))).permute(2, 0, 1)
    rows, columns = pixels.shape[-2:]
    scale = max(1.0, height / rows, width / columns) * MARGIN
    size = max(math.ceil(rows * scale), height + 1), max(math.ceil(columns * scale), width + 1)
    enlarged = interpolate(pixels[None].float(), size=size, mode="bicubic", align_corners=False)
    return enlarged[0].round_().clamp_(0, 255).to(torch.uint8)


def photographs_sha256() -> str:
    """Hash of the six files in their order: which photographs a number is of.

    Raises:
        ValueError: There are no photographs.
    """
    place, digest = folder(), hashlib.sha256()
    for name in TEXTURES:
        digest.update(hashlib.sha256((place / name).read_bytes()).digest())
    return digest.hexdigest()


def folder() -> Path:
    """The folder of photographs.

    Raises:
        ValueError: The folder is missing or lacks files; says what to do.
    """
    root = os.environ.get("ASSAY_DATA_ROOT")
    own = Path(root) / FOLDER if root else None
    if own is not None and own.is_dir():
        if missing := [name for name in TEXTURES if not (own / name).is_file()]:
            raise ValueError(f"frost needs six photographs in {own}, it lacks {', '.join(missing)}")
        return own
    spec = importlib.util.find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "frost" / TEXTURES[0]).is_file():
            return Path(place) / "frost"
    raise ValueError(
        f"frost needs its six photographs ({TEXTURES[0]} to {TEXTURES[-1]}), which this worker lacks: put"
        f" them into {own or f'{FOLDER} below ASSAY_DATA_ROOT'}, or pip install 'assay-robustness[reference]'"
    )
