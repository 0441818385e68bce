"""Projected steepest ascent where each iterate is known: a linear model, and a model with given slopes."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.kernels.projected_ascent import Ascent
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import State
from assay.attacks.passes import StraightThrough
from assay.attacks.randomness import Randomness
from assay.attacks.threat import Ball, clip_to
from tests.support.linear_models import LinearModel

WEIGHTS = torch.tensor([3.0, -4.0], dtype=torch.float64)
LABELS = torch.zeros(1, dtype=torch.int64)
Linear = partial(LinearModel, WEIGHTS)


def pair(first: float, second: float) -> Tensor:
    return torch.tensor([first, second], dtype=torch.float64).reshape(1, 1, 1, 2)


def ascent(**parameters: Any) -> Ascent:
    usual: dict[str, Any] = {"ball": Ball("Linf", 0.25), "goal": Goal(), "step_size": 0.1, "steps": 4}
    return Ascent("pgd", **(usual | parameters))


def test_linf_steps_go_along_the_sign_as_far_as_the_ball_and_the_box(run: Any) -> None:
    model = Linear()
    state = run(ascent(), model, pair(0.5, 0.15), LABELS)
    expected = [pair(0.5, 0.15), pair(0.6, 0.05), pair(0.7, 0.0), pair(0.75, 0.0), pair(0.75, 0.0)]
    # The driver asks for the clean logits first.
    for seen, point in zip(model.seen[1:], expected, strict=True):
        torch.testing.assert_close(seen, point)
    torch.testing.assert_close(state["best"], pair(0.75, 0.0))
    # The last iterate needs no gradient.
    assert (state["forward"].item(), state["backward"].item()) == (5, 4)


def test_l2_steps_have_the_length_of_the_step_size(run: Any) -> None:
    model = Linear()
    run(ascent(ball=Ball("L2", 0.25)), model, pair(0.1, 0.9), LABELS, box=None)
    unit = (WEIGHTS / 5).reshape(1, 1, 1, 2)
    for number, seen in enumerate(model.seen[1:]):
        torch.testing.assert_close(seen, pair(0.1, 0.9) + min(0.1 * number, 0.25) * unit)


def test_a_target_is_approached(run: Any) -> None:
    """The logit of class 1 falls where class 0 is the target of an example of class 1."""
    goal, model = Goal(targeted=True, target_class=0), Linear(offset=-5.0)
    state = run(ascent(goal=goal), model, pair(0.5, 0.5), torch.ones(1, dtype=torch.int64))
    torch.testing.assert_close(state["best"], pair(0.25, 0.75))
    assert not state["broken"].item()


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_each_restart_begins_at_its_own_draws_in_the_ball(run: Any, norm: Any) -> None:
    ball, images = Ball(norm, 0.25), pair(0.1, 0.9)
    model, source = Linear(), Randomness(3, "pgd")
    attack = ascent(ball=ball, steps=2, restarts=3, random_start=True)
    state = run(attack, model, images, LABELS, randomness=source)
    for restart in range(3):
        draws = source.uniform(["digit-0"], (1, 1, 2), restart=restart, dtype=torch.float64)
        start = clip_to(images + ball.project((2 * draws - 1) * 0.25), (0.0, 1.0))
        torch.testing.assert_close(model.seen[1 + 3 * restart], start)
    assert len(model.seen) == 1 + 3 * 3
    assert (state["forward"].item(), state["backward"].item()) == (9, 6)


def test_the_highest_loss_of_all_restarts_counts(run: Any) -> None:
    attack = ascent(steps=1, restarts=4, random_start=True, step_size=0.01)
    model = Linear()
    state = run(attack, model, pair(0.5, 0.5), LABELS)
    scores = torch.stack([Linear()(seen)[0, 1] for seen in model.seen[1:]])
    best = Linear()(state["best"])[0, 1]
    assert best == scores.max()
    torch.testing.assert_close(state["objective"], torch.log1p(best.exp())[None])


class Band(nn.Module):
    """Always slopes upwards in both pixels; class 1 wins where the first one is between 0.55 and 0.65."""

    def forward(self, points: Tensor) -> Tensor:
        first = points.flatten(1)[:, 0]
        inside = (first > 0.55) & (first < 0.65)
        score = StraightThrough.apply(points.flatten(1).sum(1), torch.where(inside, 1.0, -1.0).to(points))
        return torch.stack([torch.zeros_like(score), score], dim=1)


@pytest.mark.parametrize("final_iterate", [False, True])
def test_iterates_on_the_way_count_unless_only_the_final_does(run: Any, final_iterate: bool) -> None:
    state = run(ascent(), Band(), pair(0.5, 0.5), LABELS, final_iterate=final_iterate)
    if final_iterate:
        torch.testing.assert_close(state["best"], pair(0.75, 0.75))
        assert state["rank"].item() == 0
        assert state["forward"].item() == 5
    else:
        torch.testing.assert_close(state["best"], pair(0.6, 0.6))
        assert state["broken"].item()
        assert state["forward"].item() == 2


@pytest.mark.parametrize(("steps", "before"), [(20, 18), (10, 9), (9, None)])
def test_the_plateau_is_the_objective_before_the_last_tenth_of_the_steps(
    run: Any, steps: int, before: int | None
) -> None:
    ball = Ball("Linf", 1.0)
    attack = ascent(ball=ball, steps=steps, step_size=0.001)
    state: State = run(attack, Linear(), pair(0.2, 0.8), LABELS)
    if before is None:
        assert state["plateau"].isnan().all()
    else:
        score = Linear()(pair(0.2 + 0.001 * before, 0.8 - 0.001 * before))[:, 1]
        torch.testing.assert_close(state["plateau"], torch.log1p(score.exp()), rtol=1e-9, atol=0)


class Cliff(nn.Module):
    """Its slope in the first pixel is not finite."""

    def forward(self, points: Tensor) -> Tensor:
        flat = points.flatten(1)
        score = StraightThrough.apply(flat @ torch.tensor([torch.inf, 1.0], dtype=flat.dtype), 0 * flat[:, 0])
        return torch.stack([torch.zeros_like(score), score - 1], dim=1)


def test_a_slope_that_is_not_finite_moves_nothing(run: Any) -> None:
    state = run(ascent(steps=1), Cliff(), pair(0.5, 0.5), LABELS, final_iterate=True)
    torch.testing.assert_close(state["best"], pair(0.5, 0.6))
    assert state["nonfinite_gradient"].item()


def test_without_steps_the_image_alone_is_judged(run: Any) -> None:
    state = run(ascent(steps=0), Linear(), pair(0.5, 0.5), LABELS)
    assert torch.equal(state["best"], pair(0.5, 0.5))
    assert (state["forward"].item(), state["backward"].item()) == (1, 0)


def test_images_keep_their_dtype(run: Any) -> None:
    class Single(LinearModel):
        def forward(self, points: Tensor) -> Tensor:
            return super().forward(points.double())

    attack = ascent(steps=2, restarts=2, random_start=True)
    assert run(attack, Single(WEIGHTS), pair(0.5, 0.5).float(), LABELS)["best"].dtype == torch.float32
