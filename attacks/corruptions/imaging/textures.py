"""Frost photographs, which are not in this repository: from a folder, or from `imagecorruptions-imaug`.

The folder `frost-photographs` below ASSAY_DATA_ROOT goes first; the package is not imported. The authors list
six photographs, and draw a number below five: the sixth is never used. They shrink the photographs to 0.2 and
0.3 of their size for images of 32 and 64 pixels. The fork draws from all six, and enlarges each to be a tenth
larger than itself or the image.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import math
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, pad

from assay.attacks.corruptions.imaging.constants import FORK, Constants

FOLDER = "frost-photographs"
PACKAGE = "imagecorruptions"
TEXTURES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg", "frost6.jpg")
DRAWN = 5
MARGIN = 1.1
UNITS = 2048  # of the weights of neighbours
# Size of the photographs in use, as a share of their own.
SCALES: Mapping[Constants, float] = {"imagenet_c": 1.0, "cifar_c": 0.2, "tiny_imagenet_c": 0.3}


def textures_of(constants: Constants) -> tuple[str, ...]:
    """Names of the photographs that are drawn from: five, the fork's six."""
    return TEXTURES if constants == FORK else TEXTURES[:DRAWN]


def frost_texture(number: int, height: int, width: int, constants: Constants = "imagenet_c") -> Tensor:
    """Frost photograph, RGB, uint8 (3, >= H + 1, >= W + 1), large enough for images of H x W pixels.

    The number is from 0 to 4, for the fork to 5; `constants` says whose size the photograph has.
    """
    path = folder() / TEXTURES[number]
    return _sized(path, path.stat().st_mtime_ns, height, width, constants)


def frost_crops(places: Tensor, height: int, width: int, constants: Constants) -> Tensor:
    """Crops of the photographs, uint8 (n, 3, H, W), from their numbers, rows and columns, int64 (n, 3)."""
    if places.device.type == "cpu":
        parts = [
            frost_texture(number, height, width, constants)[:, top : top + height, left : left + width]
            for number, top, left in places.tolist()
        ]
        return torch.stack(parts)
    numbers, tops, lefts = places.unbind(1)
    names = [folder() / name for name in textures_of(constants)]
    stamps = tuple((path, path.stat().st_mtime_ns) for path in names)
    stacked = _stacked(stamps, height, width, constants, places.device)
    rows = tops[:, None] + torch.arange(height, device=places.device)
    columns = lefts[:, None] + torch.arange(width, device=places.device)
    return stacked[numbers[:, None, None], rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


@functools.lru_cache(maxsize=4)
def _stacked(
    stamps: tuple[tuple[Path, int], ...], height: int, width: int, constants: Constants, device: torch.device
) -> Tensor:
    """All photographs, with zeros to the size of the largest: uint8 (photographs, rows, columns, 3)."""
    found = [_sized(path, changed, height, width, constants) for path, changed in stamps]
    rows, columns = (max(whole.shape[axis] for whole in found) for axis in (-2, -1))
    padded = [
        pad(whole, (0, columns - whole.shape[-1], 0, rows - whole.shape[-2])).permute(1, 2, 0)
        for whole in found
    ]
    return torch.stack(padded).to(device)


@functools.lru_cache(maxsize=2 * len(TEXTURES))
def _sized(path: Path, _changed: int, height: int, width: int, constants: Constants) -> Tensor:
    with Image.open(path) as file:
        pixels = torch.from_numpy(np.array(file.convert("RGB"))).permute(2, 0, 1)
    if constants != FORK:
        shrunk = _shrunk(pixels, SCALES[constants])
        if shrunk.shape[-2] > height and shrunk.shape[-1] > width:
            return shrunk
    return _enlarged(pixels, height, width)


def _shrunk(pixels: Tensor, scale: float) -> Tensor:
    """Photograph (3, H, W) at a share of its size, as by OpenCV: bilinear, in whole numbers, not smoothed."""
    if scale == 1:
        return pixels
    left, right, far = _neighbours(pixels.shape[-1], scale)
    upper, lower, low = _neighbours(pixels.shape[-2], scale)
    wide = pixels.long()
    lines = wide[..., left] * (UNITS - far) + wide[..., right] * far >> 4
    above, below = lines[:, upper] * (UNITS - low)[:, None], lines[:, lower] * low[:, None]
    return ((above >> 16) + (below >> 16) + 2 >> 2).to(torch.uint8)


def _neighbours(side: int, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    places = (torch.arange(round(side * scale), dtype=torch.float64) + 0.5) / scale - 0.5
    first = places.floor().clamp(0, side - 1)
    weights = ((places - first).clamp(0, 1) * UNITS).round().long()
    return first.long(), (first + 1).clamp(max=side - 1).long(), weights


def _enlarged(pixels: Tensor, height: int, width: int) -> Tensor:
    rows, columns = pixels.shape[-2:]
    scale = max(1.0, height / rows, width / columns) * MARGIN
    size = max(math.ceil(rows * scale), height + 1), max(math.ceil(columns * scale), width + 1)
    enlarged = interpolate(pixels[None].float(), size=size, mode="bicubic", align_corners=False)
    return enlarged[0].round_().clamp_(0, 255).to(torch.uint8)


def photographs_sha256(constants: Constants = "imagenet_c") -> str:
    """Hash of the files that are drawn from, in their order: which photographs a number is of."""
    place, digest = folder(), hashlib.sha256()
    for name in textures_of(constants):
        digest.update(hashlib.sha256((place / name).read_bytes()).digest())
    return digest.hexdigest()


def folder() -> Path:
    """The folder of photographs."""
    root = os.environ.get("ASSAY_DATA_ROOT")
    own = Path(root) / FOLDER if root else None
    if own is not None and own.is_dir():
        if missing := [name for name in TEXTURES if not (own / name).is_file()]:
            raise ValueError(f"frost needs its photographs in {own}, it lacks {', '.join(missing)}")
        return own
    spec = importlib.util.find_spec(PACKAGE)
    for place in spec.submodule_search_locations or () if spec else ():
        if (Path(place) / "frost" / TEXTURES[0]).is_file():
            return Path(place) / "frost"
    raise ValueError(
        f"frost needs its six photographs ({TEXTURES[0]} to {TEXTURES[-1]}), which this worker lacks: put"
        f" them into {own or f'{FOLDER} below ASSAY_DATA_ROOT'}, or pip install 'assay-robustness[reference]'"
    )
