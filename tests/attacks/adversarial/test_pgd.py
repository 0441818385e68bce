from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial.fgsm import fgsm
from assay.attacks.adversarial.pgd import pgd
from assay.attacks.threat import sizes


def accuracy(state: dict[str, Tensor]) -> float:
    return float((state["rank"] == 0).double().mean())


def test_more_steps_restarts_and_epsilon_leave_less(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:300], digits[1][:300]

    def left(**params: Any) -> float:
        return accuracy(run(pgd(**params), network, images, labels))

    curve = [left(epsilon=epsilon, steps=10) for epsilon in (0.0, 0.02, 0.05, 0.1, 0.5)]
    assert curve == sorted(curve, reverse=True)
    assert curve[0] > 0.95
    assert curve[-1] == 0
    assert left(epsilon=0.05, steps=20) <= left(epsilon=0.05, steps=2, relative_step_size=0.2)
    assert left(epsilon=0.05, steps=10, restarts=3) <= curve[2]
    assert left(epsilon=0.05, steps=20) <= accuracy(run(fgsm(epsilon=0.05), network, images, labels))


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_the_random_start_is_in_the_ball_and_differs_per_restart(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any, norm: Any
) -> None:
    images = 0.5 * torch.ones(6, 1, 8, 8)
    seen: list[Tensor] = []

    def constant(points: Tensor) -> Tensor:
        seen.append(points.detach().clone())
        return torch.eye(10)[0].expand(len(points), 10) + 0 * points.sum()

    class Constant(nn.Module):
        def forward(self, points: Tensor) -> Tensor:
            return constant(points)

    attack = pgd(epsilon=0.1, norm=norm, steps=2, restarts=2, cycle_detection=False)
    run(attack, Constant(), images, torch.zeros(6).long())
    starts = seen[1], seen[4]
    assert not torch.equal(*starts)
    for start in starts:
        radius = sizes(start - images, norm)
        assert (radius <= 0.1 + 1e-6).all()
        assert (radius > 0.08).all()
    # A zero gradient moves nothing.
    assert torch.equal(seen[1], seen[2])
    # So there is nothing more to see: one pass for the images, one for each start.
    again, seen = seen, []
    run(dataclasses.replace(attack, cycle_detection=True), Constant(), images, torch.zeros(6).long())
    assert len(seen) == 3
    assert torch.equal(seen[1], again[1])
    assert torch.equal(seen[2], again[4])


@pytest.mark.parametrize("cycle_detection", [True, False])
def test_passes_are_exact_on_a_model_whose_answer_is_known(run: Any, cycle_detection: bool) -> None:
    class Threshold(nn.Module):
        """Class 0 below 0.5, class 1 above."""

        def forward(self, points: Tensor) -> Tensor:
            value = points.flatten(1)
            return torch.cat([0.5 - value, value - 0.5], 1)

    images = torch.tensor([0.42, 0.3, 0.49, 0.445]).reshape(4, 1, 1, 1).double()
    attack = pgd(epsilon=0.1, step_size=0.03, steps=6, random_start=False, cycle_detection=cycle_detection)
    state = run(attack, Threshold(), images, torch.zeros(4).long())
    # 0.42 .45 .48 .51: the fourth iterate breaks it; 0.3 .33 .36 .39 .4 .4; 0.49 .52; 0.445 .475 .505.
    assert state["broken"].tolist() == [True, False, True, True]
    assert state["forward"].tolist() == [4, 5 if cycle_detection else 7, 2, 3]
    assert state["backward"].tolist() == [4, 5 if cycle_detection else 6, 2, 3]
    torch.testing.assert_close(state["best"].flatten(), torch.tensor([0.51, 0.4, 0.52, 0.505]).double())


def test_a_targeted_attack_reaches_its_target(
    digits: tuple[Tensor, Tensor], network: nn.Module, run: Any
) -> None:
    images, labels = digits[0][:100], digits[1][:100]
    attack = pgd(epsilon=0.5, steps=40, targeted=True, target_class=3)
    state = run(attack, network, images, labels, final_iterate=True)
    expected = torch.where(labels == 3, 4, 3)
    assert (state["prediction"] == expected).double().mean() > 0.95


def test_step_size_overrides_the_relative_one() -> None:
    relative: Any = pgd(epsilon=0.1)
    absolute: Any = pgd(epsilon=0.1, step_size=0.07)
    assert relative.step_size == pytest.approx(0.015)
    assert absolute.step_size == 0.07


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"restarts": 0}, "restarts"),
        ({"epsilon": -1}, "epsilon"),
        ({"norm": "L1"}, "allowed are Linf, L2"),
        ({"target": "any"}, "target is 'any'"),
        ({"epsilon": 0.1, "step_size": 0.2, "backend": "cleverhans"}, "step_size"),
    ],
)
def test_bad_parameters_are_refused(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pgd(**params)
