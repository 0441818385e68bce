"""Photometric distortion with draws that are known, against colorsys."""

from __future__ import annotations

import colorsys
import random
from collections.abc import Sequence

import numpy as np
import pytest

from assay.workers.training.augmentation.photometric import distort


class Scripted(random.Random):
    """Scripted choice of parts, with the end of every range."""

    def __init__(self, happens: Sequence[bool], *, upper: bool = True) -> None:
        super().__init__(0)
        self._answers = [0.0 if yes else 1.0 for yes in happens]
        self._upper = upper

    def random(self) -> float:
        return self._answers.pop(0)

    def uniform(self, a: float, b: float) -> float:
        return b if self._upper else a


NONE = (False, False, False, False, False)  # brightness, contrast last, contrast, saturation, hue
PIXELS = np.array([[[200, 100, 50], [10, 240, 30]], [[0, 0, 0], [255, 255, 255]]], dtype=np.uint8)


def test_nothing_happens() -> None:
    changed = distort(PIXELS, Scripted(NONE))
    assert np.array_equal(changed, PIXELS)
    assert changed is not PIXELS


@pytest.mark.parametrize(("upper", "delta"), [(True, 32), (False, -32)])
def test_brightness_is_added(upper: bool, delta: int) -> None:
    changed = distort(PIXELS, Scripted((True, False, False, False, False), upper=upper))
    assert np.array_equal(changed, np.clip(PIXELS.astype(int) + delta, 0, 255))


@pytest.mark.parametrize("last", [True, False])
def test_contrast_multiplies_before_or_after_the_colours(last: bool) -> None:
    changed = distort(PIXELS, Scripted((True, last, True, False, False), upper=False))
    assert np.array_equal(changed, np.rint(np.clip(PIXELS.astype(int) - 32, 0, 255) * 0.5))
    both = [
        distort(PIXELS, Scripted((False, last, True, True, False), upper=False)) for last in (True, False)
    ]
    assert np.abs(both[0].astype(int) - both[1].astype(int)).max() <= 2  # 0.5 x and HSV almost commute


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize(("saturated", "turned"), [(True, False), (False, True), (True, True)])
def test_saturation_and_hue_are_those_of_hsv(upper: bool, saturated: bool, turned: bool) -> None:
    changed = distort(PIXELS, Scripted((False, False, False, saturated, turned), upper=upper))
    for before, after in zip(PIXELS.reshape(-1, 3), changed.reshape(-1, 3), strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*(before / 255))
        hue += (0.1 if upper else -0.1) if turned else 0.0
        saturation = min(1.0, saturation * ((1.5 if upper else 0.5) if saturated else 1.0))
        expected = 255 * np.array(colorsys.hsv_to_rgb(hue % 1.0, saturation, value))
        assert np.abs(after - expected).max() <= 8  # HSV has 8 bits


def test_grey_images_have_no_colours() -> None:
    grey = np.arange(16, dtype=np.uint8).reshape(4, 4, 1) * 16
    assert np.array_equal(distort(grey, Scripted((False, False, False, True, True))), grey)


def test_the_draws_decide() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    made = [distort(pixels, random.Random(seed)) for seed in range(40)]
    assert all(np.array_equal(one, distort(pixels, random.Random(seed))) for seed, one in enumerate(made))
    assert all((one.shape, one.dtype) == (pixels.shape, pixels.dtype) for one in made)
    assert 0 < sum(np.array_equal(one, pixels) for one in made) < 10  # all parts are off in one of 16
