from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LRScheduler, OneCycleLR, PolynomialLR

from assay.workers.training.schedule import POWER, SCHEDULES, cosine_learning_rate, polynomial_learning_rate


def rates(steps: int = 100, warmup_steps: int = 10) -> list[float]:
    return [
        cosine_learning_rate(step, steps=steps, warmup_steps=warmup_steps, peak=1.0, start=0.1, minimum=0.01)
        for step in range(steps)
    ]


def test_rises_linearly_to_the_peak() -> None:
    assert rates()[:11] == pytest.approx([0.1 + 0.09 * step for step in range(11)])


def test_falls_along_a_cosine_to_the_minimum() -> None:
    curve = rates()[10:]
    assert curve == pytest.approx([0.01 + 0.99 * math.cos(math.pi * t / 180) ** 2 for t in range(90)])
    assert all(later < earlier for earlier, later in itertools.pairwise(curve))
    assert curve[-1] == pytest.approx(0.01, abs=1e-3)


def test_no_warm_up_starts_at_the_peak() -> None:
    assert rates(warmup_steps=0)[0] == 1.0


def test_nothing_but_warm_up() -> None:
    curve = rates(steps=4, warmup_steps=4)
    assert curve == pytest.approx([0.1, 0.325, 0.55, 0.775])


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)
def test_a_step_outside_the_training_is_a_bug(schedule: Callable[..., float]) -> None:
    with pytest.raises(AssertionError):
        schedule(5, steps=5, warmup_steps=0, peak=1.0, start=0.0, minimum=0.0)


def torchs(make: Callable[[torch.optim.Optimizer], LRScheduler], steps: int) -> list[float]:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = make(optimiser)
    found = []
    for step in range(steps):
        found.append(scheduler.get_last_lr()[0])
        optimiser.step()
        if step + 1 < steps:
            scheduler.step()
    return found


@pytest.mark.parametrize(("steps", "warmup_steps"), [(40, 12), (10, 1), (7, 7), (10, 0), (1, 1)])
@pytest.mark.parametrize(("name", "anneal"), [("one_cycle", "cos"), ("one_cycle_linear", "linear")])
def test_one_cycle_is_torchs(name: str, anneal: Any, steps: int, warmup_steps: int) -> None:
    values = {"peak": 0.5, "start": 0.5 / 25, "minimum": 0.5 / 25 / 1e4}
    ours = [SCHEDULES[name](step, steps=steps, warmup_steps=warmup_steps, **values) for step in range(steps)]
    assert max(ours) <= 0.5
    if warmup_steps == 1 or steps == 1:  # torch divides by zero there
        assert ours[0] == 0.5
        return

    def make(optimiser: torch.optim.Optimizer) -> LRScheduler:
        share = {"pct_start": warmup_steps / steps, "anneal_strategy": anneal, "cycle_momentum": False}
        return OneCycleLR(optimiser, 0.5, total_steps=steps, **share)

    assert ours == pytest.approx(torchs(make, steps), rel=1e-12)


@pytest.mark.parametrize(("name", "anneal"), [("one_cycle", "cos"), ("one_cycle_linear", "linear")])
def test_the_momentum_of_one_cycle_is_torchs(name: str, anneal: Any) -> None:
    optimiser = torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler = OneCycleLR(optimiser, 1.0, total_steps=30, pct_start=0.2, anneal_strategy=anneal)
    values = {"steps": 30, "warmup_steps": 6, "peak": 0.85, "start": 0.95, "minimum": 0.95}
    for step in range(30):
        expected = optimiser.param_groups[0]["betas"]
        assert SCHEDULES[name](step, **values) == pytest.approx(expected[0], rel=1e-12)
        if step < 29:
            optimiser._opt_called = True  # nothing has to be stepped for its schedule
            scheduler.step()


@pytest.mark.parametrize("warmup_steps", [4, 1, 0])
def test_inverse_sqrt_is_fairseqs(warmup_steps: int) -> None:
    """By the formulas of its class: a line to the peak at step w, then peak * sqrt(w) / sqrt(step)."""
    values = {"steps": 100, "warmup_steps": warmup_steps, "peak": 1e-3, "start": 1e-7, "minimum": 0.0}
    found = [SCHEDULES["inverse_sqrt"](step, **values) for step in range(100)]
    rise = [1e-7 + step * (1e-3 - 1e-7) / warmup_steps for step in range(warmup_steps)]
    factor = 1e-3 * max(warmup_steps, 1) ** 0.5
    fall = [factor * max(step, 1) ** -0.5 for step in range(warmup_steps, 100)]
    assert found == pytest.approx(rise + fall, rel=1e-12)
    floored = [SCHEDULES["inverse_sqrt"](step, **(values | {"minimum": 3e-4})) for step in range(100)]
    assert min(floored[warmup_steps:]) == 3e-4


def test_constant_stays_after_its_rise() -> None:
    values = {"steps": 6, "warmup_steps": 2, "peak": 1.0, "start": 0.5, "minimum": 0.1}
    assert [SCHEDULES["constant"](step, **values) for step in range(6)] == [0.5, 0.75, 1, 1, 1, 1]


def test_polynomial_is_torchs() -> None:
    values = {"steps": 20, "warmup_steps": 0, "peak": 1.0, "start": 0.0, "minimum": 0.0}
    ours = [polynomial_learning_rate(step, **values) for step in range(20)]
    assert ours == pytest.approx(torchs(lambda o: PolynomialLR(o, total_iters=20, power=POWER), 20))
    last = polynomial_learning_rate(19, **(values | {"minimum": 0.1}))
    assert last == pytest.approx(0.1 + 0.9 * 0.05**0.9)
