"""Transforms, borders, zooms and streaks against plain ways to compute the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch.nn.functional import conv2d

from assay.attacks.corruptions.imaging.filters import (
    blur,
    correlate,
    extend,
    fast_length,
    gaussian_weights,
    smooth_widely,
)
from assay.attacks.corruptions.imaging.motion import smear, taps
from assay.attacks.corruptions.imaging.zoom import zoom_into_the_middle
from assay.attacks.corruptions.zoom_blur import ZOOMS, factors, zoom_blur


def test_correlation_is_that_of_a_convolution_layer() -> None:
    fields = torch.rand(3, 2, 31, 26)
    kernels = torch.rand(3, 1, 5, 8)
    found = correlate(fields, kernels)
    for field, kernel, result in zip(fields, kernels, found, strict=True):
        torch.testing.assert_close(result, conv2d(field[:, None], kernel[None])[:, 0], rtol=1e-5, atol=1e-5)
    one = correlate(fields, kernels[0, 0])
    torch.testing.assert_close(one[1], conv2d(fields[1][:, None], kernels[:1])[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("border", "mode"), [("clamp", "edge"), ("mirror", "reflect"), ("symmetric", "symmetric")]
)
@pytest.mark.parametrize("size", [(6, 9), (2, 3), (1, 4)])
def test_borders_are_those_of_numpy(border: str, mode: str, size: tuple[int, int]) -> None:
    field = torch.rand(1, 2, *size)
    found = extend(field, (5, 7), (8, 3), border)  # type: ignore[arg-type]
    expected = np.pad(field.numpy(), ((0, 0), (0, 0), (5, 7), (8, 3)), mode=mode)  # type: ignore[call-overload]
    assert np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("size", [(6, 10), (16, 32), (20, 20), (32, 32), (45, 60), (264, 300)])
def test_a_transform_gives_an_image_the_same_bits_in_every_batch(size: tuple[int, int]) -> None:
    fields, kernels = torch.rand(5, 3, *size), torch.rand(5, 1, *(min(9, side) for side in size))
    together = correlate(fields, kernels)
    alone = torch.cat([correlate(fields[row : row + 1], kernels[row : row + 1]) for row in range(5)])
    assert torch.equal(together, alone)


def test_sizes_of_transforms_are_even_products_of_small_primes() -> None:
    for length in (1, 7, 17, 224, 241, 263, 1021):
        found = fast_length(length)
        assert found >= length
        assert found % 2 == 0
        rest = found
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        assert rest == 1
        assert found <= 1.2 * length + 2


def test_a_blur_keeps_flat_fields_and_spreads_a_point() -> None:
    torch.testing.assert_close(blur(torch.ones(1, 1, 9, 7), (2.0, 1.0), "clamp"), torch.ones(1, 1, 9, 7))
    point = torch.zeros(1, 1, 21, 21)
    point[0, 0, 10, 10] = 1
    spread = blur(point, (1.5, 1.5), "clamp")[0, 0]
    weights = gaussian_weights(1.5, 6)
    torch.testing.assert_close(spread[4:17, 4:17].double(), weights[:, None] * weights, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("end", "step"), {zoom for table in ZOOMS.values() for zoom in table})
def test_zooms_are_those_of_arange(end: float, step: float) -> None:
    assert factors(end, step) == tuple(np.arange(1, end, step).tolist())


def test_a_zoom_keeps_the_corners_of_the_middle_and_has_no_dark_border() -> None:
    ramp = torch.arange(12.0).expand(1, 1, 12, 12)
    zoomed = zoom_into_the_middle(ramp, 2.0)
    assert zoomed.shape == (1, 1, 12, 12)
    torch.testing.assert_close(zoomed[0, 0, 0], torch.linspace(3, 8, 12))
    white = torch.ones(1, 3, 160, 160)
    assert torch.equal(zoom_blur(severity=5)(white, ("white",), 0), white)


def test_streaks_are_means_along_a_line() -> None:
    fields = torch.rand(2, 1, 40, 50)
    angles = torch.tensor([-30.0, 45.0], dtype=torch.float64)
    found = smear(fields, 5, 3.0, angles, (-45.0, 45.0))
    assert found.shape == fields.shape
    for row, angle in enumerate(angles.tolist()):
        expected = torch.zeros(40, 50)
        weights = [math.exp(-0.5 * (step / 3) ** 2) for step in range(11)]
        for step, weight in enumerate(weights):
            down = math.ceil(step * math.sin(math.radians(angle)) - 0.5)
            across = math.ceil(step * math.cos(math.radians(angle)) - 0.5)
            rows = (torch.arange(40) + down).clamp(0, 39)
            columns = (torch.arange(50) + across).clamp(0, 49)
            expected += weight / sum(weights) * fields[row, 0][rows][:, columns]
        torch.testing.assert_close(found[row, 0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inside", [False, True])
def test_only_the_forks_streaks_darken_images_smaller_than_they(inside: bool) -> None:
    white = torch.ones(2, 3, 12, 9)
    smeared = smear(white, 10, 15.0, torch.tensor([0.0, 30.0]), (-45.0, 45.0), inside=inside)
    assert (float(smeared.max()) < 0.8) is inside
    assert inside or float((smeared - 1).abs().max()) < 1e-5


def test_wide_smoothing_is_that_of_scipy() -> None:
    fields = torch.rand(2, 1, 20, 33, dtype=torch.float64)
    found = smooth_widely(fields, 60.0, 3.0)
    for field, smooth in zip(fields[:, 0], found[:, 0], strict=True):
        expected = gaussian_filter(field.numpy(), 60.0, mode="reflect", truncate=3.0)
        torch.testing.assert_close(smooth, torch.from_numpy(expected), rtol=0, atol=1e-12)


def test_streaks_longer_than_the_image_lose_their_ends() -> None:
    down, across, weights = taps(10, 15.0, torch.tensor([0.0]), 30, 12)
    assert int((weights > 0).sum()) == 12
    assert int(across.max()) == 11
    assert not down.any()
