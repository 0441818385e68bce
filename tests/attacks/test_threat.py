from __future__ import annotations

import math

import pytest
import torch

from assay.attacks.threat import Ball, BallNorm, L1Ball, clip_to, sizes, steepest, steepest_sparse


@pytest.mark.parametrize(
    ("norm", "epsilon"), [("L1", 0.1), ("Linf", -0.1), ("L2", math.inf), ("L2", math.nan)]
)
def test_balls_that_make_no_sense_are_refused(norm: BallNorm, epsilon: float) -> None:
    with pytest.raises(ValueError, match=r"norm is|epsilon is"):
        Ball(norm, epsilon)
    with pytest.raises(ValueError, match=r"epsilon is -1"):
        L1Ball(-1)


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_projection_ends_in_the_ball_and_leaves_the_inside_alone(norm: BallNorm) -> None:
    ball = L1Ball(0.5) if norm == "L1" else Ball(norm, 0.5)
    outside = torch.randn(6, 3, 4, 4, dtype=torch.float64)
    projected = ball.project(outside)
    assert (sizes(outside, norm) > 0.5).all()
    assert (sizes(projected, norm) <= 0.5 + 1e-12).all()
    assert torch.equal(ball.project(projected * 0.9), projected * 0.9)
    if norm != "Linf":
        torch.testing.assert_close(
            torch.cosine_similarity(outside.flatten(1), projected.flatten(1)), torch.ones(6).double()
        )


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_the_steepest_direction_has_unit_size(norm: BallNorm) -> None:
    gradient = torch.randn(5, 3, 4, 4, dtype=torch.float64)
    direction = steepest(gradient, norm)
    torch.testing.assert_close(sizes(direction, norm), torch.ones(5).double())
    assert ((gradient * direction).flatten(1).sum(1) > 0).all()


def test_a_zero_gradient_gives_no_direction() -> None:
    zero = torch.zeros(2, 1, 3, 3)
    assert torch.equal(steepest(zero, "L2"), zero)
    assert torch.equal(steepest(zero, "Linf"), zero)
    assert torch.equal(steepest(zero, "L1"), zero)


def test_the_steepest_l1_directions_are_the_largest_entries() -> None:
    gradient = torch.tensor([[1.0, -4.0, 0.0, 3.0], [2.0, 1.0, -2.0, -2.0]])
    third = 1 / 3
    assert steepest(gradient, "L1").tolist() == [
        [0, -1, 0, 0],
        [pytest.approx(third), 0, pytest.approx(-third), pytest.approx(-third)],
    ]
    assert steepest_sparse(gradient[:1], 2).tolist() == [[0, -0.5, 0, 0.5]]


def test_points_are_uniform_in_the_l2_ball() -> None:
    ball = Ball("L2", 2.0)
    points = ball.uniform_point(torch.randn(20000, 1, 1, 3), torch.rand(20000))
    radii = sizes(points, "L2")
    assert radii.max() <= 2.0 + 1e-6
    # Half of the volume of a 3-dimensional ball lies inside the radius 2 * 0.5 ** (1 / 3).
    assert abs(float((radii < 2 * 0.5 ** (1 / 3)).float().mean()) - 0.5) < 0.02
    assert points.mean(0).abs().max() < 0.05


def test_points_are_uniform_in_the_l1_ball() -> None:
    ball = L1Ball(2.0)
    points = ball.uniform_point(torch.rand(20000, 1, 1, 3), torch.rand(20000))
    radii = sizes(points, "L1")
    assert radii.max() <= 2.0 + 1e-6
    assert abs(float((radii < 2 * 0.5 ** (1 / 3)).float().mean()) - 0.5) < 0.02
    assert points.mean(0).abs().max() < 0.05
    # One entry's share of the size is Beta(1, 2): below 1/2 in three quarters of the points.
    share = points[:, 0, 0, 0].abs() / radii
    assert abs(float((share < 0.5).float().mean()) - 0.75) < 0.02
    assert ball.uniform_point(torch.tensor([[0.0, 0.5, 1.0]]), torch.ones(1)).isfinite().all()


def test_linf_points_fill_the_cube() -> None:
    ball = Ball("Linf", 0.25)
    corners = ball.uniform_point(torch.tensor([[0.0, 0.5, 1.0]]), torch.zeros(1))
    assert corners.tolist() == [[-0.25, 0.0, 0.25]]
    assert torch.equal(ball.cube_start(torch.tensor([[0.0, 0.5, 1.0]])), corners)


def test_no_box_does_not_clip() -> None:
    images = torch.tensor([[-1.0, 2.0]])
    assert clip_to(images, None) is images
    assert clip_to(images, (0.0, 1.0)).tolist() == [[0.0, 1.0]]
