"""Checks across the evaluations of one job."""

from __future__ import annotations

from typing import Any

from service.contract.results import EvaluationResult, Metric
from service.contract.validity import cross_checks


def pgd(epsilon: str | float, top1: float, **params: Any) -> EvaluationResult:
    metric = Metric(value=top1, n=100, ci_low=0, ci_high=1, ci_method="wilson", higher_is_better=True)
    return EvaluationResult(
        name="pgd",
        params={"epsilon": epsilon, "norm": "Linf", "steps": 20, **params},
        data={"name": "digits", "params": {}},
        protocol="pixel",
        backend="native",
        metrics={"top1": metric},
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )


def codes(*evaluations: EvaluationResult) -> list[str]:
    return [warning.code for warning in cross_checks(evaluations)]


def test_step_sizes_at_one_epsilon_are_no_rise_with_epsilon() -> None:
    assert codes(pgd("2/255", 0.5, step_size=0.01), pgd(2 / 255, 0.7, step_size=0.0001)) == []


def test_the_strongest_attack_at_each_epsilon_is_compared() -> None:
    weak, strong = pgd("2/255", 0.7, step_size=0.0001), pgd("2/255", 0.5, step_size=0.01)
    assert codes(weak, strong, pgd("4/255", 0.4)) == []
    assert codes(weak, strong, pgd("4/255", 0.6)) == ["accuracy_rises_with_epsilon"]
    assert codes(strong, pgd("4/255", 0.4), pgd("4/255", 0.6, step_size=0.0001)) == []
