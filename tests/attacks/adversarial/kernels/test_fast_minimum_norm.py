"""FMN's radius and projections against their formulas, norm by norm."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.fmn import fmn
from assay.attacks.adversarial.kernels.fast_minimum_norm import FastMinimumNorm
from assay.attacks.adversarial.kernels.minimum_norm import Iterate
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.threat import BallNorm, sizes
from tests.attacks.adversarial.kernels.iterates import step_of

NORMS: tuple[BallNorm, ...] = ("Linf", "L2", "L1", "L0")


def descent(norm: BallNorm, **parameters: Any) -> FastMinimumNorm:
    usual: dict[str, Any] = {"goal": Goal(), "steps": 10}
    return FastMinimumNorm("fmn", norm, **(usual | parameters))


def numbers(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def radius_after(attack: FastMinimumNorm, *, success: bool, found: bool, **at: float) -> float:
    """The next radius of a perturbation of norm `size` at `value`, where the slope is (3, -4)."""
    gradient = numbers(3, -4).view(1, 1, 1, 2)
    iterate = Iterate(numbers(at["value"]), gradient, numbers(at["size"]), torch.tensor([success]))
    state = {
        "images": torch.zeros_like(gradient),
        "radius": numbers(at["radius"]),
        "smallest": numbers(at.get("smallest", 50.0)),
        "found": torch.tensor([found]),
        "iteration": torch.zeros(1, dtype=torch.int64),
    }
    return attack._radius(state, iterate).item()


@pytest.mark.parametrize(("norm", "dual"), [("Linf", 7.0), ("L2", 5.0), ("L1", 4.0)])
def test_before_the_first_adversarial_the_radius_aims_at_the_boundary(norm: BallNorm, dual: float) -> None:
    at = {"value": -2.0, "size": 1.5, "radius": math.inf}
    assert radius_after(descent(norm), success=False, found=False, **at) == pytest.approx(1.5 + 2 / dual)
    # It grows by gamma at least, unless the authors' rule is asked for.
    at["radius"] = 4.0
    assert radius_after(descent(norm), success=False, found=False, **at) == pytest.approx(4 * 1.05)
    authors = descent(norm, overshoot=False)
    assert radius_after(authors, success=False, found=False, **at) == pytest.approx(1.5 + 2 / dual)


@pytest.mark.parametrize("norm", ["Linf", "L2", "L1"])
def test_later_the_radius_changes_by_gamma(norm: BallNorm) -> None:
    at = {"value": -2.0, "size": 1.5, "radius": 2.0}
    attack = descent(norm, gamma=0.1)
    assert radius_after(attack, success=False, found=True, **at) == pytest.approx(2.2)
    assert radius_after(attack, success=True, found=True, **at) == pytest.approx(1.8)
    assert radius_after(attack, success=True, found=True, **at, smallest=0.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("radius", "success", "expected"),
    [(4, False, 5), (4, True, 3), (40, False, 44), (40, True, 36), (0, True, 0), (1, True, 0)],
)
def test_in_l0_the_radius_changes_by_a_value_at_least(radius: float, success: bool, expected: float) -> None:
    attack = descent("L0", gamma=0.1)
    assert radius_after(attack, success=success, found=True, value=1, size=1, radius=radius) == expected


def test_the_first_radius_is_unbounded_and_one_value_in_l0() -> None:
    first = {norm: descent(norm)._own(torch.zeros(2, 1, 2, 2))["radius"].tolist() for norm in NORMS}
    assert first == {"Linf": [math.inf] * 2, "L2": [math.inf] * 2, "L1": [math.inf] * 2, "L0": [1.0] * 2}


def projected(norm: BallNorm, perturbation: Tensor, radius: float) -> Tensor:
    whole = perturbation.view(1, 1, 1, -1)
    return descent(norm)._projected(torch.zeros_like(whole), whole, numbers(radius)).flatten()


def test_projections() -> None:
    given = numbers(0.3, -0.4, 0.0)
    torch.testing.assert_close(projected("Linf", given, 0.35), numbers(0.3, -0.35, 0.0))
    # In L2 a shorter perturbation is lengthened, too.
    torch.testing.assert_close(projected("L2", given, 0.25), given / 2)
    torch.testing.assert_close(projected("L2", given, 1.0), given * 2)
    torch.testing.assert_close(projected("L1", given, 0.5), numbers(0.2, -0.3, 0.0))
    torch.testing.assert_close(projected("L1", given, 5.0), given)
    torch.testing.assert_close(projected("L0", given, 1.0), numbers(0.0, -0.4, 0.0))
    torch.testing.assert_close(projected("L0", given, 2.0), given)


def test_in_l0_equal_values_stay_together() -> None:
    given = numbers(0.5, -0.5, 0.2)
    torch.testing.assert_close(projected("L0", given, 1.0), numbers(0.5, -0.5, 0.0))


@pytest.mark.parametrize("norm", NORMS)
def test_a_step_stays_in_the_ball_and_the_box(norm: BallNorm) -> None:
    radius = 3.0 if norm == "L0" else 0.2
    setting, state, iterate = step_of(
        {
            "radius": torch.full((4,), radius, dtype=torch.float64),
            "smallest": torch.full((4,), 9.0, dtype=torch.float64),
            "found": torch.ones(4, dtype=torch.bool),
        }
    )
    moved = descent(norm)._moved(setting, state, iterate)
    assert float(moved.min()) >= 0
    assert float(moved.max()) <= 1
    assert (sizes(moved - state["images"], norm) <= state["radius"] * (1 + 1e-9)).all()
    assert not torch.equal(moved, state["adversarial"])


def test_the_objective_is_the_lead_over_the_label_or_of_the_target() -> None:
    logits, goal = numbers(1, 4, 2).view(1, 3), torch.tensor([0])
    assert descent("L2")._objective(goal)(logits).item() == 4 - 1
    targeted = descent("L2", goal=Goal(targeted=True))
    assert targeted._objective(goal)(logits).item() == 1 - 4


def test_a_success_never_widens_the_ball_beyond_the_smallest_one() -> None:
    at = {
        "radius": torch.tensor([10.0, 10.0, 2.0, 2.0], dtype=torch.float64),
        "smallest": torch.tensor([3.0, 3.0, 9.0, 9.0], dtype=torch.float64),
        "found": torch.ones(4, dtype=torch.bool),
    }
    _, state, iterate = step_of(at)
    by_norm = {norm: fmn(norm=norm, steps=10)._radius(state, iterate) for norm in NORMS}  # type: ignore[attr-defined]
    # Of the successes, the first and third: the smallest one so far, or one value less.
    assert by_norm["L0"].tolist()[::2] == [3.0, 1.0]
    assert by_norm["L0"].tolist()[1::2] == [11.0, 3.0]
    for norm in ("Linf", "L2", "L1"):
        assert by_norm[norm][0] == 3
        assert by_norm[norm][2] < 2
        assert (by_norm[norm][1::2] > torch.tensor([10, 2])).all()
