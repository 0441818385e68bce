from __future__ import annotations

import math

import pytest
import torch

from attacks.threat import Ball, Norm, clip_to, sizes, steepest


@pytest.mark.parametrize(
    ("norm", "epsilon"), [("L1", 0.1), ("Linf", -0.1), ("L2", math.inf), ("L2", math.nan)]
)
def test_balls_that_make_no_sense_are_refused(norm: Norm, epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"norm is|epsilon is"):
        Ball(norm, epsilon)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_projection_ends_in_the_ball_and_leaves_the_inside_alone(norm: Norm) -> None:
    ball = Ball(norm, 0.5)
    outside = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    projected = ball.project(outside)
    assert (sizes(outside, norm) > 0.5).all()
    assert (sizes(projected, norm) <= 0.5 + 1e-12).all()
    assert torch.equal(ball.project(projected * 0.9), projected * 0.9)
    if norm == "L2":
        torch.testing.assert_close(
            torch.cosine_similarity(outside.flatten(1), projected.flatten(1)), torch.ones(6).double()
        )


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_the_steepest_direction_has_unit_size(norm: Norm) -> None:
    gradient = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    direction = steepest(gradient, norm)
    torch.testing.assert_close(sizes(direction, norm), torch.ones(5).double())
    assert ((gradient * direction).flatten(1).sum(1) > 0).all()


def test_a_zero_gradient_gives_no_direction() -> None:
    zero = torch.zeros(2, 1, 3, 3)
    assert torch.equal(steepest(zero, "L2"), zero)
    assert torch.equal(steepest(zero, "Linf"), zero)


def test_points_are_uniform_in_the_l2_ball() -> None:
    ball = Ball("L2", 2.0)
    points = ball.uniform_point(torch.randn(20000, 1, 1, 3), torch.rand(20000))
    radii = sizes(points, "L2")
    assert radii.max() <= 2.0 + 1e-6
    # Half of the volume of a 3-dimensional ball lies inside the radius 2 * 0.5 ** (1 / 3).
    assert abs(float((radii < 2 * 0.5 ** (1 / 3)).float().mean()) - 0.5) < 0.02
    assert points.mean(0).abs().max() < 0.05


def test_linf_points_fill_the_cube() -> None:
    ball = Ball("Linf", 0.25)
    corners = ball.uniform_point(torch.tensor([[0.0, 0.5, 1.0]]), torch.zeros(1))
    assert corners.tolist() == [[-0.25, 0.0, 0.25]]
    assert torch.equal(ball.cube_start(torch.tensor([[0.0, 0.5, 1.0]])), corners)


def test_no_box_does_not_clip() -> None:
    images = torch.tensor([[-1.0, 2.0]])
    assert clip_to(images, None) is images
    assert clip_to(images, (0.0, 1.0)).tolist() == [[0.0, 1.0]]
