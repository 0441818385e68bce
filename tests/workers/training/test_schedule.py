from __future__ import annotations

import itertools
import math

import pytest

from workers.training.schedule import cosine_learning_rate


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


def test_a_step_outside_the_training_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        cosine_learning_rate(5, steps=5, warmup_steps=0, peak=1.0, start=0.0, minimum=0.0)
