"""Affine maps: places, borders, and images of single pixels."""

from __future__ import annotations

import torch

from assay.attacks.corruptions.imaging.affine import triangle, warp


def moved(levels: torch.Tensor, by: tuple[float, float]) -> torch.Tensor:
    corners = triangle(*levels.shape[-2:])
    return warp(levels, corners, (corners + torch.tensor(by)).expand(len(levels), 3, 2))


def test_points_that_stay_leave_the_image_as_it_is() -> None:
    levels = torch.arange(2 * 3 * 9 * 12.0).view(2, 3, 9, 12)
    assert torch.equal(moved(levels, (0.0, 0.0)), levels)


def test_whole_steps_move_pixels_and_mirror_the_border() -> None:
    levels = torch.arange(108.0).view(1, 1, 9, 12)
    found = moved(levels, (2.0, -1.0))  # to the right, and up
    assert torch.equal(found[..., :-1, 2:], levels[..., 1:, :-2])
    assert torch.equal(found[..., :-1, 0], levels[..., 1:, 2])
    assert torch.equal(found[..., -1, 2:], levels[..., -2, :-2])


def test_places_are_whole_32nds_of_a_pixel() -> None:
    levels = torch.arange(12.0).expand(1, 1, 9, 12)
    for step, share in ((0.5, 0.5), (0.26, 0.25), (0.01, 0.0), (1 / 64 + 1e-3, 1 / 32)):
        found = moved(levels, (step, 0.0))[0, 0, 4]
        torch.testing.assert_close(found[2:], torch.arange(2.0, 12.0) - share, rtol=0, atol=1e-6)


def test_each_image_has_its_own_map() -> None:
    levels = torch.rand(2, 3, 16, 16)
    corners = triangle(16, 16)
    after = torch.stack([corners, corners + torch.tensor([[1.0, 0], [0, 2], [3, 1]])])
    together = warp(levels, corners, after)
    assert torch.equal(together[0], levels[0])
    assert torch.equal(together[1:], warp(levels[1:], corners, after[1:]))


def test_points_that_fall_together_leave_the_image_as_it_is() -> None:
    levels = torch.rand(1, 3, 16, 16)
    assert torch.equal(warp(levels, triangle(16, 16), torch.zeros(1, 3, 2)), levels)
