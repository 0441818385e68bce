"""DDN's step against its formula, and its levels."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.ddn import ddn
from assay.attacks.adversarial.kernels.decoupled_direction import DecoupledDirection
from assay.attacks.adversarial.kernels.targeting import Goal
from tests.attacks.adversarial.kernels.iterates import step_of


def descent(**parameters: Any) -> DecoupledDirection:
    return DecoupledDirection("ddn", "L2", Goal(), steps=10, **parameters)


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("iteration", [0, 4, 9])
def test_a_step_is_the_papers(iteration: int) -> None:
    """With four images: two are adversarial, and their norm shrinks."""
    setting, state, iterate = step_of({"radius": numbers(0.4, 0.2, 0.1, 0.3)})
    state["iteration"] = torch.full((4,), iteration)
    images = state["images"]
    images.mul_(0.5).add_(0.25)
    drawn = torch.Generator().manual_seed(1)
    earlier = 0.2 * torch.randn(images.shape, generator=drawn, dtype=torch.float64)
    state["adversarial"] = images + earlier
    length = 0.01 + 0.99 * (1 + math.cos(math.pi * iteration / 10)) / 2
    radii = [0.4 * 0.95, 0.2 * 1.05, 0.1 * 0.95, 0.3 * 1.05]
    moved = descent()._moved(setting, state, iterate)
    for image, before, point, gradient, radius in zip(
        *(images, earlier, moved, iterate.gradient, radii), strict=True
    ):
        perturbation = before + length * gradient / gradient.norm()
        expected = (image + radius * perturbation / perturbation.norm()).clamp(0, 1)
        torch.testing.assert_close(point, expected, rtol=0, atol=1e-7)
    torch.testing.assert_close(state["radius"], numbers(*radii), rtol=1e-7, atol=0)


def test_the_norm_never_leaves_the_box() -> None:
    """At most to the farthest corner of the box."""
    setting, state, iterate = step_of({"radius": numbers(100, 100, 0.1, 100)})
    descent()._moved(setting, state, iterate)
    images = state["images"]
    farthest = torch.maximum(images, 1 - images).flatten(1).norm(dim=1)
    torch.testing.assert_close(state["radius"][[0, 1, 3]], farthest[[0, 1, 3]])
    assert state["radius"][2].item() == pytest.approx(0.095)


def test_a_gradient_of_zero_gives_no_move() -> None:
    setting, state, iterate = step_of({"radius": numbers(1, 1, 1, 1)})
    state["adversarial"] = state["images"].clone()
    still = iterate._replace(gradient=torch.zeros_like(iterate.gradient))
    assert torch.equal(descent()._moved(setting, state, still), state["images"])


def test_it_starts_with_its_first_norm() -> None:
    images = torch.zeros(3, 1, 2, 2)
    own = descent(first_norm=0.7)._own(images)
    assert own["radius"].tolist() == pytest.approx([0.7] * 3)
    assert own["radius"].dtype == images.dtype


def test_levels_are_the_nearest_to_the_values_without_them() -> None:
    at: dict[str, Tensor] = {"radius": torch.full((4,), 0.4, dtype=torch.float64)}
    free, level = (
        attack._moved(*step_of(at))
        for attack in (ddn(steps=10), ddn(steps=10, levels=17))  # type: ignore[attr-defined]
    )
    levels = torch.arange(17, dtype=torch.float64) / 16
    nearest = levels[(free[..., None] - levels).abs().argmin(-1)]
    torch.testing.assert_close(level, nearest, rtol=0, atol=1e-12)
    assert (level > free).any(), "rounded down alone"
    assert (level < free).any()
