"""JPEG files of levels: what an image is after it was written at a quality and read again.

ITU-T T.81 (JPEG), baseline, with half the chroma rows and columns (4:2:0). On a CPU by Pillow. On other
devices the lossy steps alone, as products of matrices of whole numbers in float64, which are exact in any
order: every level is equal to what libjpeg's integer transform ("islow") gives, which Pillow calls. Its
fast butterflies (Loeffler, Ligtenberg and Moschytz 1989, "Practical Fast 1-D DCT Algorithms with 11
Multiplications") round only after each pass, so a pass is one matrix; waves have 13 binary digits, colours
16, and 2 digits are kept between passes.

n = images, C = channels, H x W = size.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from io import BytesIO

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

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

    Grey images are compressed as colour images, as by the released code: the luminance is the same.
    """
    if levels.device.type == "cpu":
        return each_picture(levels, functools.partial(_written_and_read, quality=quality))
    return in_tensors(levels, quality)


def _written_and_read(picture: Image.Image, quality: int) -> Image.Image:
    file = BytesIO()
    picture.convert("RGB").save(file, "JPEG", quality=quality)
    return Image.open(file).convert(picture.mode)


def in_tensors(levels: Tensor, quality: int) -> Tensor:
    """As `recompressed`, by operations on tensors of any device."""
    exact, (height, width) = levels.double(), levels.shape[-2:]
    if levels.shape[1] == 1:
        return _in_blocks(exact, LUMINANCE, quality).to(levels.dtype)
    whole = functools.partial(_whole, device=levels.device)
    mixed = (whole(TO_CHROMA, 16) @ exact.flatten(2)).view_as(exact)
    # Halves of chroma are rounded down, halves of luminance up.
    mixed.add_(whole(((2**15,), (2**23 + 2**15 - 1,), (2**23 + 2**15 - 1,)), 16)[:, None]).floor_()
    luminance = _in_blocks(mixed[:, :1], LUMINANCE, quality)
    full = _padded(mixed[:, 1:], height % 2, -width % 16)
    # Quarters to add before truncation: one and two by turns.
    turns = whole(((1, 2) * (full.shape[-1] // 4),), 2)
    chroma = _in_blocks(avg_pool2d(full, 2).add_(turns).floor_(), CHROMINANCE, quality)
    chroma = _enlarged(chroma[..., : (width + 1) // 2], height, width)
    middle = whole(tuple((2**15 - GREY * sum(shares),) for shares in TO_COLOUR), 16)[:, None]
    colours = (whole(TO_COLOUR, 16) @ chroma.flatten(2)).view_as(exact).add_(middle).floor_()
    return colours.add_(luminance).clamp_(0, TOP).to(levels.dtype)  # (n, C, H, W)


def _in_blocks(planes: Tensor, divisors: Sequence[int], quality: int) -> Tensor:
    """Planes (n, c, H, W), float64, after the transform of each block was rounded to multiples."""
    height, width = planes.shape[-2:]
    planes = _padded(planes, -height % 8, -width % 8)
    whole = functools.partial(_whole, device=planes.device)
    # Grey is subtracted from the constant wave alone: the other waves have the sum 0.
    middle = whole(((2**10 - GREY * 8 * WAVES[0][0], *[2**10] * 7),), 11)
    rows = (planes.reshape(-1, 8) @ whole(_waves(), 11).T).add_(middle).floor_().view(-1, 8, planes.shape[-1])
    both = (whole(_waves(), 15) @ rows).add_(0.5).floor_()  # (n c H/8, 8, W), a frequency down and across
    sizes = whole(_steps(divisors, quality), 0)[:, None]  # (8, 1, 8)
    # The factor rounds halves away from 0, and nothing else: all numbers are far below 2^30.
    both.view(-1, 8, planes.shape[-1] // 8, 8).mul_((1 + 2.0**-30) / (8 * sizes)).round_().mul_(sizes)
    down = (whole(_waves(), 11).T @ both).add_(0.5).floor_()
    back = (down.view(-1, 8) @ whole(_waves(), 18)).add_(GREY + 0.5).floor_().clamp_(0, TOP)
    return back.view(planes.shape)[..., :height, :width]


def _padded(planes: Tensor, rows: int, columns: int) -> Tensor:
    return pad(planes, (0, columns, 0, rows), mode="replicate") if rows or columns else planes


def _enlarged(planes: Tensor, height: int, width: int) -> Tensor:
    """Planes of half the size to H x W: each of two new pixels has three quarters of its old one."""
    if planes.shape[-1] <= 2:  # too narrow for libjpeg
        return planes.repeat_interleave(2, -1).repeat_interleave(2, -2)[..., :height, :width]
    down, across = (_whole(_nearest(side), 2, device=planes.device) for side in (height, width))
    turns = _whole(((8, 7) * planes.shape[-1],), 4, device=planes.device)[:, :width]
    return (down @ planes @ across.T).add_(turns).floor_()


def _waves() -> tuple[tuple[int, ...], ...]:
    return tuple((*half, *((-1) ** wave * value for value in half[::-1])) for wave, half in enumerate(WAVES))


def _nearest(side: int) -> tuple[tuple[int, ...], ...]:
    """Weights in quarters of the old pixels for each of `side` new ones."""
    last = (side + 1) // 2 - 1
    pairs = [(new // 2, min(max(new // 2 + 2 * (new % 2) - 1, 0), last)) for new in range(side)]
    return tuple(tuple(3 * (old == near) + (old == far) for old in range(last + 1)) for near, far in pairs)


def _steps(divisors: Sequence[int], quality: int) -> tuple[tuple[int, ...], ...]:
    """Multiples to which the frequencies are rounded, (8, 8): down, then across."""
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    found = [min(max((divisor * percent + 50) // 100, 1), TOP) for divisor in divisors]
    return tuple(tuple(found[down : down + 8]) for down in range(0, 64, 8))


@functools.lru_cache(maxsize=128)
def _whole(numbers: Sequence[Sequence[int]], digits: int, *, device: torch.device) -> Tensor:
    """Whole numbers in units of 2^-digits, float64; kept on the device, so that nothing waits for them."""
    return torch.tensor(numbers, dtype=torch.float64).div_(2**digits).to(device)
