"""Decoding of image files; resizing of the short side and centre crop."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from assay.workers.data.formats.dataset import CorruptData


def open_picture(source: Path | BytesIO, name: str | None = None) -> Image.Image:
    """Decoded image, in its stored mode.

    Args:
        source: a file, or its content.
        name: what messages call it; the file's path if absent.

    Raises:
        CorruptData: it cannot be decoded, or has more than 8 bits per channel; names it.
    """
    name = str(source) if name is None else name
    try:
        with Image.open(source) as image:
            image.load()
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CorruptData(f"{name} cannot be read as an image ({error}); replace or remove it") from error
    if image.mode.startswith(("I", "F")):  # PIL would clip these to 0..255, not scale them
        raise CorruptData(f"{name} has more than 8 bits per channel; save it with 8")
    return image


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height of an image file, from its header.

    Raises:
        CorruptData: it cannot be read; names it.
    """
    try:
        with Image.open(path) as image:
            return image.size
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise CorruptData(f"{path} cannot be read as an image ({error}); replace or remove it") from error


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


def as_picture(pixels: Tensor) -> Image.Image:
    """8-bit image from pixels in [0, 1], (C, H, W) with C 1 or 3."""
    values = (pixels * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()  # (H, W, C)
    return Image.fromarray(values[:, :, 0] if values.shape[2] == 1 else values)


def in_threads(task: Callable[[int], None], count: int) -> None:
    """Run a task for 0 to count - 1 on torch's number of threads; errors are re-raised here."""
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        list(pool.map(task, range(count)))  # list() re-raises errors of the threads
