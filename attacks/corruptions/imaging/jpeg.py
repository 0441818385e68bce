"""JPEG files of levels: what an image is after it was written at a quality and read again.

ITU-T T.81 (JPEG), baseline, with half the chroma rows and columns (4:2:0). On a CPU by Pillow. On other
devices the lossy steps alone, in whole numbers: colours in float32, which holds their 24 binary digits,
blocks in float64. Sums are exact in any order, and every level equals libjpeg's integer transform ("islow"),
which Pillow calls. Its fast butterflies (Loeffler, Ligtenberg and Moschytz 1989, "Practical Fast 1-D DCT
Algorithms with 11 Multiplications") round only after each pass, so a pass is one product with a matrix; waves
have 13 binary digits, colours 16, and 2 digits are kept between passes.

n = images, C = channels, H x W = size.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from io import BytesIO
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, one_hot, pad

from assay.attacks.corruptions.imaging.corruption import TOP
from assay.attacks.corruptions.imaging.pillow import each_picture

# Left half of each frequency's wave in 2^-13; the right half is its mirror image, negated for odd ones.
WAVES = (
    (8192, 8192, 8192, 8192),
    (11363, 9633, 6437, 2260),
    (10703, 4433, -4433, -10703),
    (9633, -2259, -11362, -6436),
    (8192, -8192, -8192, 8192),
    (6437, -11362, 2261, 9633),
    (4433, -10704, 10704, -4433),
    (2260, -6436, 9633, -11363),
)
GREY = 128
# T.81, tables K.1 and K.2: divisors at quality 50, a row of frequencies down.
LUMINANCE = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56),
    *(14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92),
    *(49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)
CHROMINANCE = (
    *(17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, *[99] * 5),
    *(47, 66, *[99] * 6, *[99] * 32),
)
# Red, green and blue to luminance and two chroma with 128 added, and back, in 2^-16.
TO_CHROMA = ((19595, 38470, 7471), (-11059, -21709, 32768), (32768, -27439, -5329))
TO_COLOUR = ((0, 91881), (-22554, -46802), (116130, 0))


def recompressed(levels: Tensor, quality: int) -> Tensor:
    """Levels (n, C, H, W), C 1 or 3, after they were written as JPEG files of a quality, 1 to 100, and read.

    Grey images are compressed as colour images, as in the released code.
    """
    if levels.device.type == "cpu":
        return each_picture(levels, functools.partial(_written_and_read, quality=quality))
    return in_tensors(levels, quality)


def _written_and_read(picture: Image.Image, quality: int) -> Image.Image:
    file, grey = BytesIO(), picture.mode == "L"
    (picture.convert("RGB") if grey else picture).save(file, "JPEG", quality=quality)
    read = Image.open(file)
    return read.convert("L") if grey else read


def in_tensors(levels: Tensor, quality: int) -> Tensor:
    """As `recompressed`, by operations on tensors of any device, whole numbers in float32."""
    if levels.shape[1] == 1:
        return _in_blocks(levels, LUMINANCE, quality).to(levels.dtype)
    height, width = levels.shape[-2:]
    mixed = _mixed(levels.contiguous())  # a plane in one piece, as each is read by itself
    luminance = _in_blocks(mixed[:, :1], LUMINANCE, quality)
    full = _padded(mixed[:, 1:], height % 2, -width % 16)
    # Quarters to add before truncation: one and two by turns.
    turns = _whole((1, 2) * (full.shape[-1] // 4), 2, levels.device)
    chroma = _in_blocks(avg_pool2d(full, 2).add_(turns).floor_(), CHROMINANCE, quality)
    chroma = _enlarged(chroma[..., : (width + 1) // 2].to(levels.dtype), height, width)
    return coloured(luminance, chroma)


def _mixed(levels: Tensor) -> Tensor:
    """Luminance and two chroma (n, 3, H, W), whole numbers, of colours (n, 3, H, W)."""
    mixed = torch.empty_like(levels)
    # Halves of luminance are rounded up, halves of chroma down.
    halves = _whole((2**15, 2**23 + 2**15 - 1, 2**23 + 2**15 - 1), 16, levels.device)
    colours = levels.unbind(1)
    for half, shares, plane in zip(halves, TO_CHROMA, mixed.unbind(1), strict=True):
        torch.add(half, colours[0], alpha=shares[0] / 2**16, out=plane)
        for colour, share in zip(colours[1:], shares[1:], strict=True):
            plane.add_(colour, alpha=share / 2**16)
    return mixed.floor_()


def coloured(luminance: Tensor, chroma: Tensor) -> Tensor:
    """Colours (n, 3, H, W), float32, of luminance (n, 1, H, W) and of chroma (n, 2, H, W) around 0."""
    blue, red = chroma.unbind(1)
    colours = chroma.new_empty(len(chroma), 3, *chroma.shape[-2:])
    for (of_blue, of_red), plane in zip(TO_COLOUR, colours.unbind(1), strict=True):
        if of_blue and of_red:
            torch.mul(blue, of_blue / 2**16, out=plane).add_(red, alpha=of_red / 2**16)
        else:
            torch.mul(blue if of_blue else red, (of_blue or of_red) / 2**16, out=plane)
    # No sum is a half, so the nearest whole number is libjpeg's.
    return colours.round_().add_(luminance).clamp_(0, TOP)


def _in_blocks(planes: Tensor, divisors: tuple[int, ...], quality: int) -> Tensor:
    """Levels of planes (n, c, H, W), uint8, after the transform of each block was rounded to multiples."""
    height, width = planes.shape[-2:]
    planes = _padded(planes, -height % 8, -width % 8)
    count, channels, rows, columns = planes.shape
    tiles = planes.view(count, channels, rows // 8, 8, columns // 8, 8).transpose(3, 4)
    blocks = tiles.to(torch.float64, memory_format=torch.contiguous_format).view(-1, 64)
    across, down, factors, up, back = _passes(divisors, quality, planes.device)
    blocks = torch.addmm(across.halves, blocks, across.waves).floor_()
    blocks = torch.addmm(down.halves, blocks, down.waves).floor_()
    blocks = torch.addmm(up.halves, blocks.mul_(factors).round_(), up.waves).floor_()
    blocks = torch.addmm(back.halves, blocks, back.waves).clamp_(0, TOP)
    levels = blocks.view(tiles.shape).transpose(3, 4).to(torch.uint8, memory_format=torch.contiguous_format)
    return levels.view(planes.shape)[..., :height, :width]


class _Pass(NamedTuple):
    """One pass over blocks (b, 64) of eight rows: their product with `waves`, plus `halves`."""

    halves: Tensor  # (64,)
    waves: Tensor  # (64, 64)


@functools.lru_cache(maxsize=64)
def _passes(
    divisors: tuple[int, ...], quality: int, device: torch.device
) -> tuple[_Pass, _Pass, Tensor, _Pass, _Pass]:
    """The passes to frequencies across and down, factors to multiples of their steps, the passes back.

    float64 on the device, kept there, so that nothing waits for them.
    """
    half = torch.tensor(WAVES, dtype=torch.float64)
    mirrored = half.flip(1) * torch.tensor([1, -1] * 4)[:, None]
    waves, still = torch.cat([half, mirrored], dim=1), torch.eye(8, dtype=torch.float64)  # a wave in a row
    steps = torch.tensor(_steps(divisors, quality), dtype=torch.float64)
    # Grey is subtracted from the constant wave alone: the other waves have the sum 0.
    grey = torch.tensor([GREY * 8.0 * WAVES[0][0], *[0.0] * 7], dtype=torch.float64).repeat(8)
    across = _Pass((2**10 - grey) / 2**11, torch.kron(still, waves.T.contiguous()) / 2**11)
    halves = torch.full((64,), 0.5, dtype=torch.float64)
    down = _Pass(halves, torch.kron(waves.T.contiguous(), still) / 2**15)
    # The factors round halves away from 0, and nothing else: all numbers are far below 2^30.
    factors = (1 + 2.0**-30) / (8 * steps)
    up = _Pass(halves, torch.kron(waves, still) * steps[:, None] / 2**11)
    back = _Pass(halves + GREY, torch.kron(still, waves) / 2**18)

    def there(one: _Pass) -> _Pass:
        return _Pass(one.halves.to(device), one.waves.to(device))

    return there(across), there(down), factors.to(device), there(up), there(back)


def _padded(planes: Tensor, rows: int, columns: int) -> Tensor:
    return pad(planes, (0, columns, 0, rows), mode="replicate") if rows or columns else planes


def _enlarged(planes: Tensor, height: int, width: int) -> Tensor:
    """Planes of half the size to H x W, less 128: a new pixel has three quarters of its old one."""
    if planes.shape[-1] <= 2:  # too narrow for libjpeg
        return planes.repeat_interleave(2, -1).repeat_interleave(2, -2)[..., :height, :width] - GREY
    down, across = (_nearest(side, planes.device) for side in (height, width))
    # Sixteenths to add before truncation: eight and seven by turns.
    turns = _whole((8 - 16 * GREY, 7 - 16 * GREY) * planes.shape[-1], 4, planes.device)[:width]
    return (down @ planes @ across.T).add_(turns).floor_()


def _steps(divisors: Sequence[int], quality: int) -> list[int]:
    """Multiples to which the frequencies are rounded, (64,): a row of frequencies down."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return [min(max((divisor * percent + 50) // 100, 1), TOP) for divisor in divisors]


@functools.lru_cache(maxsize=64)
def _nearest(side: int, device: torch.device) -> Tensor:
    """Weights of the old pixels for each of `side` new ones, whole quarters in float32."""
    last = (side + 1) // 2 - 1
    new = torch.arange(side)
    near, far = new // 2, (new // 2 + 2 * (new % 2) - 1).clamp(0, last)
    weights = 3 * one_hot(near, last + 1) + one_hot(far, last + 1)
    return weights.float().div_(4).to(device)


@functools.lru_cache(maxsize=64)
def _whole(numbers: tuple[int, ...], digits: int, device: torch.device) -> Tensor:
    """Whole numbers in units of 2^-digits, float32; kept on the device, so that nothing waits for them."""
    return torch.tensor(numbers, dtype=torch.float32).div_(2**digits).to(device)
