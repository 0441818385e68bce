"""Every corruption against the fork's (`imagecorruptions-imaug`), with the same draws: level for level.

No value may differ by more than one level, and no more than a stated share may differ at all. Shares of a
tenth of a percent come from float32 next to the border of a level, larger ones from exact ties, where the
rounding of the released code's last operation decides; docs/corruptions.md has the table.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numba
import numpy as np
import pytest
import torch
from imagecorruptions import get_corruption_names
from imagecorruptions.corruptions import _shuffle_pixels_njit_glass_blur
from numpy.typing import NDArray
from torch import Tensor

import assay.attacks.corruptions
from assay.attacks.corruptions.glass_blur import GLASSES
from assay.attacks.corruptions.imaging.corruption import Corruption
from assay.attacks.corruptions.imaging.shuffle import shuffle
from tests.support.imagecorruptions import released

# The largest share of values that may differ, by one level.
SHARES = {
    "gaussian_noise": 1e-4,
    "shot_noise": 0,
    "impulse_noise": 0,
    "defocus_blur": 1e-3,
    "glass_blur": 0,
    "motion_blur": 2e-3,
    "zoom_blur": 2e-3,
    "snow": 1e-3,
    "frost": 1e-3,
    "fog": 1e-4,
    "brightness": 2e-2,
    "contrast": 1e-4,
    "elastic_transform": 2e-3,
    "pixelate": 0,
    "jpeg_compression": 0,
    "speckle_noise": 1e-4,
    "gaussian_blur": 2e-3,
    "spatter": 1e-3,
    "saturate": 8e-2,
}
SEVERITIES = (1, 2, 3, 4, 5)
IDS = ("first", "second")


def corruption(name: str, severity: int) -> Corruption:
    made: Corruption = getattr(importlib.import_module(f"assay.attacks.corruptions.{name}"), name)(
        severity=severity, constants="imagecorruptions"
    )
    return made


def test_every_released_corruption_is_here_and_every_one_here_is_compared() -> None:
    modules = [module.name for module in pkgutil.iter_modules(assay.attacks.corruptions.__path__)]
    found = {
        name
        for module in modules
        for name in getattr(importlib.import_module(f"assay.attacks.corruptions.{module}"), "__all__", ())
    }
    assert set(get_corruption_names("all")) <= found
    assert set(SHARES) == found


@pytest.mark.sampled
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", SHARES)
def test_same_draws_give_the_released_levels(
    name: str, severity: int, photographs: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = corruption(name, severity)
    draws = ours.draws(IDS, photographs.shape[1:], seed=0)
    levels = ours.apply(photographs.clone(), *draws)
    differences = []
    for row, image in enumerate(photographs):
        theirs = released(ours, image, tuple(part[row : row + 1] for part in draws), monkeypatch)
        differences.append((levels[row] - theirs).abs())
    difference = torch.stack(differences)
    assert float(difference.max()) <= 1
    assert float((difference > 0).float().mean()) <= SHARES[name]


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(SHARES) - {"frost"}))
def test_it_agrees_on_flat_black_and_white_images(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = corruption(name, 4)
    for level in (0, 255):
        image = torch.full((3, 48, 40), float(level))
        draws = ours.draws(("flat",), image.shape, seed=1)
        difference = ours.apply(image[None].clone(), *draws)[0] - released(ours, image, draws, monkeypatch)
        assert float(difference.abs().max()) <= 1


def draw_offsets(generator: Any, glass: tuple[float, int, int], height: int, width: int) -> NDArray[np.int8]:
    """Draws of the released loop, in its order, by position: (rounds, 2, rows, columns)."""
    _, reach, rounds = glass
    drawn = np.zeros((rounds, 2, height - 2 * reach, width - 2 * reach), np.int8)
    for step in range(rounds):
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                across, down = generator(-reach, reach, size=(2,))
                drawn[step, :, h - reach - 1, w - reach - 1] = down, across
    return drawn


@pytest.mark.parametrize("glass", GLASSES["imagenet_c"])
def test_glass_shuffles_bit_for_bit_as_the_released_loop(
    glass: tuple[float, int, int], photographs: Tensor
) -> None:
    levels = photographs[:1, :, :50, :60]
    image = levels[0].to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    state = np.random.get_state()
    try:
        # The loop without numba, whose compiler takes longer than all other tests here.
        theirs = _shuffle_pixels_njit_glass_blur.py_func(50, 60, image.copy(), glass, 7)
        np.random.seed(7)
        offsets = torch.from_numpy(draw_offsets(np.random.randint, glass, 50, 60))
    finally:
        np.random.set_state(state)
    ours = shuffle(levels, offsets[None], glass[1])[0]
    assert torch.equal(ours, torch.from_numpy(theirs).permute(2, 0, 1).float())
    assert not torch.equal(ours, levels[0])


@pytest.mark.slow
@pytest.mark.parametrize("glass", GLASSES["imagenet_c"])
def test_glass_shuffles_bit_for_bit_as_the_compiled_loop(
    glass: tuple[float, int, int], photographs: Tensor
) -> None:
    image = photographs[0].to(torch.uint8).permute(1, 2, 0).contiguous().numpy()
    height, width = image.shape[:2]
    theirs = _shuffle_pixels_njit_glass_blur(height, width, image.copy(), glass, 7)
    offsets = torch.from_numpy(compiled_offsets(7, glass, height, width))
    ours = shuffle(photographs[:1], offsets[None], glass[1])[0]
    assert torch.equal(ours, torch.from_numpy(theirs).permute(2, 0, 1).float())


def compiled_offsets(seed: int, glass: tuple[float, int, int], height: int, width: int) -> NDArray[np.int8]:
    """As `draw_offsets`, from numba's own generator."""

    @numba.njit
    def pair(low: int, high: int) -> tuple[int, int]:
        across, down = np.random.randint(low, high, size=(2,))
        return across, down

    @numba.njit
    def start(value: int) -> None:
        np.random.seed(value)

    start(seed)
    return draw_offsets(lambda low, high, size: pair(low, high), glass, height, width)
