"""The shortest way to a hyperplane: against pyautoattack's, and by what makes a way the shortest."""

from __future__ import annotations

import pytest
import torch
from pyautoattack.fab_projections import projection_l1, projection_l2, projection_linf
from torch import Tensor

from assay.attacks.adversarial.kernels.hyperplane import prefix_sums, way_to_hyperplane
from assay.attacks.threat import BallNorm, sizes

THEIRS = {"Linf": projection_linf, "L2": projection_l2, "L1": projection_l1}
DUAL: dict[BallNorm, BallNorm] = {"Linf": "L1", "L2": "L2", "L1": "Linf"}


def cases(count: int, size: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Points in the box, some on its border; hyperplanes near, far and out of reach."""
    generator = torch.Generator().manual_seed(0)
    points = torch.rand(count, size, generator=generator, dtype=torch.float64)
    points[:, ::5] = points[:, ::5].round()
    weights = torch.randn(count, size, generator=generator, dtype=torch.float64)
    weights[:, 1::7] = 0
    distance = (
        torch.logspace(-4, 2, count, dtype=torch.float64) * torch.tensor([1.0, -1.0]).repeat(count)[:count]
    )
    offset = (weights * points).sum(1) - distance
    return points.to(dtype), weights.to(dtype), offset.to(dtype)


@pytest.mark.sampled
@pytest.mark.parametrize("norm", THEIRS)
@pytest.mark.parametrize("size", [2, 7, 64, 300])
def test_equals_the_librarys(norm: BallNorm, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    points, weights, constant = cases(200, size, torch.float64)
    torch.set_default_dtype(torch.float64)
    try:
        theirs = THEIRS[norm](points, weights, constant)
    finally:
        torch.set_default_dtype(torch.float32)
    ours = way_to_hyperplane(points, weights, (weights * points).sum(1) - constant, norm, (0.0, 1.0))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_ends_on_the_hyperplane_or_in_a_corner_of_the_box(norm: BallNorm, dtype: torch.dtype) -> None:
    points, weights, constant = cases(300, 50, dtype)
    offset = (weights * points).sum(1) - constant
    way = way_to_hyperplane(points, weights, offset, norm, (0.0, 1.0))
    slack = 1e-12 if dtype == torch.float64 else 1e-5
    ends = points + way
    assert ends.min() >= -slack
    assert ends.max() <= 1 + slack
    left = (weights * ends).sum(1) - constant
    farthest = torch.where(offset[:, None] * weights > 0, 0.0, 1.0).to(dtype)
    reach = (weights * (points - farthest)).abs().sum(1)
    near = offset.abs() < reach
    assert 0 < int(near.sum()) < 300
    assert left[near].abs().max() <= 50 * slack
    corner = torch.where(weights != 0, farthest, points)
    torch.testing.assert_close(ends[~near], corner[~near], rtol=0, atol=slack)
    # Coordinates that are not stopped by the box share one pace.
    pace = way.abs() if norm == "Linf" else way.abs() / weights.abs().clamp(min=1e-8)
    stopped = (ends - farthest).abs() <= 1e-6
    free = pace.masked_fill(stopped | (weights == 0), 0)
    highest = free.amax(1)
    same = (free == 0) | ((free - highest[:, None]).abs() <= 1e-3 * highest[:, None])
    assert same[near].all()


def test_in_l1_the_steepest_coordinates_move_first_and_the_last_one_in_part() -> None:
    points, weights, constant = cases(300, 50, torch.float64)
    offset = (weights * points).sum(1) - constant
    way = way_to_hyperplane(points, weights, offset, "L1", (0.0, 1.0))
    room = torch.where(offset[:, None] * weights > 0, points, 1 - points)
    near = offset.abs() < (weights.abs() * room).sum(1)
    left = (weights * (points + way)).sum(1) - constant
    assert left[near].abs().max() <= 1e-10
    moved, whole = way.abs() > 0, (way.abs() - room).abs() <= 1e-12
    slowest = weights.abs().masked_fill(~moved, torch.inf).amin(1)
    steeper = weights.abs() > slowest[:, None]
    assert 0 < int(near.sum()) < 300
    assert whole[steeper].all()


@pytest.mark.parametrize("norm", THEIRS)
def test_a_way_does_not_depend_on_the_rows_beside_it(norm: BallNorm) -> None:
    points, weights, constant = cases(60, 500, torch.float32)
    offset = (weights * points).sum(1) - constant
    together = way_to_hyperplane(points, weights, offset, norm, (0.0, 1.0))
    for row in range(60):
        one = slice(row, row + 1)
        alone = way_to_hyperplane(points[one], weights[one], offset[one], norm, (0.0, 1.0))
        assert torch.equal(alone, together[one])


@pytest.mark.parametrize("norm", THEIRS)
def test_degenerate_hyperplanes_move_nothing(norm: BallNorm) -> None:
    points = torch.tensor([[0.2, 0.0, 1.0], [0.2, 0.0, 1.0], [0.5, 0.5, 0.5]])
    weights = torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, -1.0]])
    for box in ((0.0, 1.0), None):
        way = way_to_hyperplane(points, weights, torch.tensor([0.0, 3.0, 0.0]), norm, box)
        assert torch.equal(way, torch.zeros_like(way))


@pytest.mark.parametrize("norm", THEIRS)
def test_without_a_box(norm: BallNorm) -> None:
    points, weights, constant = cases(50, 20, torch.float64)
    offset = (weights * points).sum(1) - constant
    way = way_to_hyperplane(points, weights, offset, norm, None)
    dual = sizes(weights, DUAL[norm])
    length = sizes(way, norm)
    torch.testing.assert_close(length, offset.abs() / dual)
    torch.testing.assert_close((weights * (points + way)).sum(1), constant)


@pytest.mark.sampled
@pytest.mark.parametrize("count", [1, 3, 4, 5, 16, 17, 64, 65, 300])
def test_running_sums_in_blocks_are_running_sums(count: int) -> None:
    values = torch.randn(3, count, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    torch.testing.assert_close(prefix_sums(values, 4), values.cumsum(1), rtol=0, atol=1e-12)
    assert torch.equal(prefix_sums(values), values.cumsum(1))
