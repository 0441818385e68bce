"""Decoding, resizing and cropping of images; luminance (BT.601) is 0.299 R + 0.587 G + 0.114 B, rounded."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from assay.workers.data.formats.dataset import CorruptData, reason_of
from assay.workers.data.formats.images.imagenet_classes import CROP_FRACTION

MODES = {1: "L", 3: "RGB"}  # By the number of channels
# Pillow's errors about a file's content.
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)
REMEDY = "; replace or remove it"
ORIENTATION, SIDEWAYS = 0x0112, (5, 6, 7, 8)  # EXIF's tag, and values that swap width and height


def open_picture(
    source: Path | BytesIO,
    name: str | None = None,
    *,
    mode: str | None = None,
    exif_orientation: bool = False,
) -> Image.Image:
    """The first image of a file or its content, which messages call `name`: 8 bits per channel.

    Of 16 bits the upper 8 are taken. `mode`: "L", "RGB", else the stored mode; transparency and the colours'
    profile are dropped.
    """
    name = str(source) if name is None else name
    try:
        with Image.open(source) as image:
            image.load()
        picture = _with_8_bits(image, name)
        if exif_orientation:
            ImageOps.exif_transpose(picture, in_place=True)
        return picture if mode is None else picture.convert(mode)
    except CorruptData:
        raise
    except UNREADABLE as error:
        raise unreadable(name, error) from error


def unreadable(name: str, error: Exception) -> CorruptData:
    """The error for a file, or a cell of a table, that Pillow refused (`UNREADABLE`)."""
    why = "unknown format" if isinstance(error, UnidentifiedImageError) else reason_of(error)
    return CorruptData(f"{name} cannot be read as an image ({why}){REMEDY}")


def _with_8_bits(image: Image.Image, name: str) -> Image.Image:
    if not image.mode.startswith(("I", "F")):
        return image
    # Pillow clips these to 0..255, but takes the upper byte of colours of 16 bits; grey likewise here.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        picture = Image.fromarray((np.asarray(image).astype(np.int64) >> 8).astype(np.uint8))
        if ORIENTATION in image.getexif():
            picture.getexif()[ORIENTATION] = image.getexif()[ORIENTATION]
        return picture
    raise CorruptData(f"{name} has 32 bits per channel; save it with 8 or 16")


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file, from its header."""
    try:
        with Image.open(path) as image:
            return image.size
    except UNREADABLE as error:
        raise unreadable(str(path), error) from error


def fitted(
    image: Image.Image, size: int, crop_fraction: float | None, resampling: Image.Resampling
) -> Image.Image:
    """`resize_and_crop`; without a stated fraction, images of this size stay."""
    if crop_fraction is None and image.size == (size, size):
        return image
    return resize_and_crop(image, size, crop_fraction or CROP_FRACTION, resampling)


def resize_and_crop(
    image: Image.Image, size: int, crop_fraction: float, resampling: Image.Resampling
) -> Image.Image:
    """Short side to floor(size / crop_fraction), then the centre; pixel-identical to timm's evaluation."""
    short = math.floor(size / crop_fraction)
    width, height = image.size
    portrait = width <= height
    target = (short, int(short * height / width)) if portrait else (int(short * width / height), short)
    resized = image if target == image.size else image.resize(target, resampling)
    left, top = round((target[0] - size) / 2), round((target[1] - size) / 2)
    return resized.crop((left, top, left + size, top + size))


def pixels_of(image: Image.Image) -> Tensor:
    """Pixels of 1 or 3 channels, uint8 (C, H, W)."""
    values = torch.from_numpy(np.array(image))  # (H, W) or (H, W, C)
    return values[None] if values.ndim == 2 else values.permute(2, 0, 1)


def as_picture(pixels: Tensor) -> Image.Image:
    """8-bit image from pixels in [0, 1], (C, H, W) with C 1 or 3."""
    values = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()  # (H, W, C)
    return Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)


def in_threads(task: Callable[[int], None], count: int) -> None:
    """Run a task for 0 to count - 1 on torch's number of threads; re-raises errors."""
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        list(pool.map(task, range(count)))  # re-raises errors of the threads
