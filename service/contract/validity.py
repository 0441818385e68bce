"""Checks across the evaluations of one job: what an expert reviewer would ask about the whole table.

Sources: Carlini et al., "On Evaluating Adversarial Robustness" (2019), sections 4 and 5; Croce and Hein,
AutoAttack (2020), whose flag threshold of 0.2 points is used here. A check warns, it never changes a
number. All of them read top-1 accuracy under the pixel protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any

from service.contract.fractions import fraction_value
from service.contract.results import EvaluationResult, Warning

TOLERANCE = 0.002
LARGE_EPSILON = 64 / 255
NEAR_ZERO = 0.05
NOISE = "uniform_noise"
ITERATIVE = "pgd"
SINGLE_STEP = "fgsm"
IGNORED = frozenset({"epsilon", "step_size"})


def cross_checks(evaluations: Sequence[EvaluationResult]) -> list[Warning]:
    """Every warning that follows from comparing the evaluations of a job with each other."""
    attacks = [e for e in evaluations if e.protocol == "pixel" and "epsilon" in e.params and _linf(e)]
    return [
        *_not_monotone(attacks),
        *_stronger(attacks, NOISE, (SINGLE_STEP, ITERATIVE), "noise_stronger_than_gradient"),
        *_stronger(attacks, SINGLE_STEP, (ITERATIVE,), "single_step_stronger_than_iterative"),
        *_high_at_large_epsilon(attacks),
    ]


def _not_monotone(attacks: Sequence[EvaluationResult]) -> Iterable[Warning]:
    for group in _groups(attacks):
        for smaller, larger in pairwise(_strongest_by_epsilon(group)):
            rise = _top1(larger) - _top1(smaller)
            if rise > TOLERANCE:
                yield Warning(
                    code="accuracy_rises_with_epsilon",
                    message=f"{larger.name}: accuracy rises by {rise:.4f} from epsilon"
                    f" {smaller.params['epsilon']} to {larger.params['epsilon']}; the attack is not"
                    " converged or gradients are masked",
                    evidence={"smaller": _evidence(smaller), "larger": _evidence(larger)},
                )


def _strongest_by_epsilon(group: Sequence[EvaluationResult]) -> list[EvaluationResult]:
    """Of each epsilon the evaluation with the lowest accuracy (step sizes may differ), smallest first."""
    ordered = sorted(group, key=lambda evaluation: (_epsilon(evaluation), _top1(evaluation)))
    return [next(same) for _, same in groupby(ordered, key=_epsilon)]


def _stronger(
    attacks: Sequence[EvaluationResult], weak: str, strong: tuple[str, ...], code: str
) -> Iterable[Warning]:
    for weaker in (e for e in attacks if e.name == weak):
        for stronger in (e for e in attacks if e.name in strong and _same_target(e, weaker)):
            gap = _top1(stronger) - _top1(weaker)
            if _epsilon(stronger) == _epsilon(weaker) and gap > TOLERANCE:
                yield Warning(
                    code=code,
                    message=f"{weaker.name} breaks more examples than {stronger.name} at epsilon"
                    f" {weaker.params['epsilon']}; gradients may be masked",
                    evidence={weaker.name: _evidence(weaker), stronger.name: _evidence(stronger)},
                )


def _high_at_large_epsilon(attacks: Sequence[EvaluationResult]) -> Iterable[Warning]:
    for attack in attacks:
        if attack.name == ITERATIVE and _epsilon(attack) >= LARGE_EPSILON and _top1(attack) > NEAR_ZERO:
            yield Warning(
                code="robust_at_large_epsilon",
                message=f"{attack.name}: accuracy is {_top1(attack):.4f} at epsilon"
                f" {attack.params['epsilon']}, where any model should fall to near 0;"
                " gradients may be masked",
                evidence=_evidence(attack),
            )


def _groups(attacks: Sequence[EvaluationResult]) -> Iterable[list[EvaluationResult]]:
    groups: dict[str, list[EvaluationResult]] = {}
    for attack in attacks:
        rest = {k: v for k, v in attack.params.items() if k not in IGNORED}
        groups.setdefault(f"{attack.name} {rest} {attack.data}", []).append(attack)
    return groups.values()


def _same_target(a: EvaluationResult, b: EvaluationResult) -> bool:
    return a.data == b.data and not a.params.get("targeted") and not b.params.get("targeted")


def _linf(evaluation: EvaluationResult) -> bool:
    return evaluation.params.get("norm", "Linf") == "Linf" and _top1_or_none(evaluation) is not None


def _epsilon(evaluation: EvaluationResult) -> float:
    return fraction_value(evaluation.params["epsilon"])


def _top1_or_none(evaluation: EvaluationResult) -> float | None:
    metric = evaluation.metrics.get("top1")
    return metric.value if metric else None


def _top1(evaluation: EvaluationResult) -> float:
    value = _top1_or_none(evaluation)
    assert value is not None, "only evaluations with a top-1 accuracy are compared"
    return value


def _evidence(evaluation: EvaluationResult) -> dict[str, Any]:
    return {"epsilon": evaluation.params["epsilon"], "top1": _top1(evaluation)}
