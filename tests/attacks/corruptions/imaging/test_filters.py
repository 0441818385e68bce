"""Transforms, borders, zooms and streaks against plain ways to compute the same."""

from __future__ import annotations

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


def test_correlation_is_that_of_a_convolution_layer() -> None:
    fields = torch.rand(3, 2, 31, 26)
    kernels = torch.rand(3, 1, 5, 8)
    found = correlate(fields, kernels)
    for field, kernel, result in zip(fields, kernels, found, strict=True):
        torch.testing.assert_close(result, conv2d(field[:, None], kernel[None])[:, 0], rtol=1e-5, atol=1e-5)
    one = correlate(fields, kernels[0, 0])
    torch.testing.assert_close(one[1], conv2d(fields[1][:, None], kernels[:1])[:, 0], rtol=1e-5, atol=1e-5)


@pytest.mark.sampled
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


def test_wide_smoothing_is_that_of_scipy() -> None:
    fields = torch.rand(2, 1, 20, 33, dtype=torch.float64)
    found = smooth_widely(fields, 60.0, 3.0)
    for field, smooth in zip(fields[:, 0], found[:, 0], strict=True):
        expected = gaussian_filter(field.numpy(), 60.0, mode="reflect", truncate=3.0)
        torch.testing.assert_close(smooth, torch.from_numpy(expected), rtol=0, atol=1e-12)
