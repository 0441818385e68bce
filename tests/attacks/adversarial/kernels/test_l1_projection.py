"""The projection onto the L1 ball within the box: against pyautoattack's, and by its optimality."""

from __future__ import annotations

import pytest
import torch
from pyautoattack.autopgd_base import L1_projection
from torch import Tensor

from assay.attacks.adversarial.kernels.l1_projection import l1_projection


def cases(count: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Images with many values at the border of the box, short and long perturbations, all kinds of radii."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(count, size, generator=generator, dtype=torch.float64)
    images[:, ::4] = images[:, ::4].round()
    scale = torch.logspace(-3, 1, count, dtype=torch.float64)[:, None]
    perturbation = torch.randn(count, size, generator=generator, dtype=torch.float64) * scale
    radius = perturbation.abs().sum(1) * torch.rand(count, generator=generator, dtype=torch.float64) * 1.2
    return images.to(dtype), perturbation.to(dtype), radius.to(dtype)


@pytest.mark.parametrize("size", [16, 300])
def test_equals_the_librarys(size: int) -> None:
    # Of two coordinates the library's is not the nearest point: 17 of 200 cases.
    images, perturbation, radius = cases(200, size, torch.float32)
    for row in range(200):
        one = slice(row, row + 1)
        theirs = perturbation[one] + L1_projection(images[one], perturbation[one], float(radius[row]))
        ours = l1_projection(images[one], perturbation[one], float(radius[row]), (0.0, 1.0))
        torch.testing.assert_close(ours, theirs, rtol=0, atol=2e-5 * (1 + float(radius[row]) / size))


def test_is_the_nearest_point() -> None:
    images, perturbation, radius = cases(300, 40, torch.float64)
    found = l1_projection(images, perturbation, radius, (0.0, 1.0))
    norms = found.abs().sum(1)
    assert (norms <= radius * (1 + 1e-12)).all()
    assert ((images + found) >= -1e-15).all()
    assert ((images + found) <= 1 + 1e-15).all()
    # Optimality: no feasible point has an angle below 90 degrees with the way back to the perturbation.
    back = perturbation - found
    generator = torch.Generator().manual_seed(1)
    for _ in range(200):
        other = torch.rand(300, 40, generator=generator, dtype=torch.float64) - images
        other = other * (radius / other.abs().sum(1)).clamp(max=1.0)[:, None]
        assert ((back * (other - found)).sum(1) <= 1e-9).all()
    assert (norms[norms < radius * (1 - 1e-9)] > 0).any()
    assert (norms > radius * (1 - 1e-9)).any()


def test_does_not_depend_on_the_rows_beside_it() -> None:
    images, perturbation, radius = cases(60, 500, torch.float32)
    together = l1_projection(images, perturbation, radius, (0.0, 1.0))
    for row in range(60):
        one = slice(row, row + 1)
        assert torch.equal(
            l1_projection(images[one], perturbation[one], radius[one], (0.0, 1.0)), together[one]
        )


def test_without_a_box_only_the_norm_counts() -> None:
    images, perturbation, radius = cases(100, 30, torch.float64)
    found = l1_projection(images, perturbation, radius, None)
    torch.testing.assert_close(found.abs().sum(1), torch.minimum(radius, perturbation.abs().sum(1)))
    assert (found * perturbation >= 0).all()


def test_nothing_moves_at_radius_zero_or_without_a_perturbation() -> None:
    images = torch.rand(3, 8)
    for radius in (0.0, 1.0):
        zero = l1_projection(images, torch.zeros(3, 8), radius, (0.0, 1.0))
        assert torch.equal(zero, torch.zeros(3, 8))
    assert l1_projection(images, torch.randn(3, 8), 0.0, (0.0, 1.0)).abs().max() <= 1e-6
