"""Sanity checks across the evaluations of a job, as an expert reviewer would make them.

Sources: Athalye et al., "Obfuscated Gradients Give a False Sense of Security" (2018); Carlini et al., "On
Evaluating Adversarial Robustness" (2019), sections 4 and 5; Croce and Hein, AutoAttack (2020); the latter's
flag threshold of 0.2 points is used here. A check warns, it never changes a number. All checks use top-1
accuracy under any protocol except `paper`; for segmentation, pixel accuracy.

All evaluations of a job with one data set run over the same examples. Accuracies are compared by more than
0.2 points and at least two examples: a single example decides nothing; pixel accuracies by 0.2 points alone.
Outcomes of single examples are not available here, so there is no paired test.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import EvaluationResult, Metric, Warning
from assay.service.contract.row_protocols import RadiusUnitOf, protocol_unit
from assay.service.contract.threat import Knowledge, Threat, ThreatOf
from assay.service.contract.warning_codes import WarningCode

TOLERANCE = 0.002
MIN_EXAMPLES = 2
LARGE_EPSILON = 64 / 255
ACCURACIES = ("top1", "expected_top1", "pixel_accuracy")  # The compared metric: the first one present.
NEAR_ZERO = 0.05
# Parameters that can only help an attack when they increase.
EFFORT = ("steps", "restarts", "queries", "samples", "iterations", "searches", "draws", "targets")
SCALED = ("epsilon", "step_size")  # A grid over epsilon may scale the step size with it.


_Attack = tuple[EvaluationResult, Threat]
HARDER = ("targeted", "confidence")  # They ask more than any wrong answer: an attack breaks less.


class _Order(NamedTuple):
    """Two kinds of attacks: the weaker should break fewer examples than the stronger at the same epsilon."""

    code: WarningCode
    weaker: Callable[[Threat], bool]  # whether a threat is of the weaker kind
    stronger: Callable[[Threat], bool]  # whether it is of the stronger kind
    by_name: bool  # whether every stronger attack has to beat the weaker one alone; else the best of them
    remedy: str  # the end of the message


def _of_gradients(threat: Threat) -> bool:
    return threat.knowledge is Knowledge.WHITE_BOX


def _single_step(threat: Threat) -> bool:
    return _of_gradients(threat) and threat.search == "single_step"


def _iterative(threat: Threat) -> bool:
    return _of_gradients(threat) and threat.search != "single_step"


def _fills_the_ball(threat: Threat) -> bool:
    """Whether more room helps an iterative attack; a search for the smallest perturbation does not use it."""
    return _iterative(threat) and not threat.minimum_norm


ORDERS = (
    _Order(
        "noise_stronger_than_gradient",
        lambda threat: threat.knowledge is Knowledge.NOISE,
        _of_gradients,
        True,
        "the gradients do not point uphill; try attacks that need none (square, spsa)",
    ),
    _Order(
        "single_step_stronger_than_iterative",
        _single_step,
        _fills_the_ball,
        True,
        "the iterative attack is badly tuned or gradients are masked; try apgd_ce, more restarts, another"
        " step size",
    ),
    _Order(
        "black_box_stronger_than_white_box",
        lambda threat: threat.without_gradients,
        _iterative,
        False,
        "gradients are masked: believe the lower accuracy, and attack through a smooth approximation (BPDA)"
        " or averaged gradients (EOT)",
    ),
)


def cross_checks(
    evaluations: Sequence[EvaluationResult], threat_of: ThreatOf, unit_of: RadiusUnitOf = protocol_unit
) -> list[Warning]:
    """All warnings from comparisons between the evaluations of a job."""
    # An attack with an unknown threat model (old results may have attacks that this version lacks) is
    # compared with itself only; no radius in another unit than pixels is large.
    attacks = [e for e in evaluations if e.protocol != "paper" and _is_attack(e)]
    bounded = [attack for attack in attacks if attack.params.get("epsilon") is not None]
    known = [(attack, threat) for attack in bounded if (threat := threat_of(attack.name)) is not None]
    alike = _on_same_terms(known)
    return [
        *_not_monotone(bounded),
        *(warning for order in ORDERS for warning in _out_of_order(alike, order)),
        *_high_at_large_epsilon([one for one in known if unit_of(one[0].data, one[0].protocol) == "pixel"]),
        *_more_effort_less_success(attacks),
    ]


def _not_monotone(attacks: Sequence[EvaluationResult]) -> Iterable[Warning]:
    for group in _groups(attacks, SCALED):
        for smaller, larger in pairwise(_strongest_by_epsilon(group)):
            if _clearly_more(larger, smaller):
                rise = _accuracy(larger) - _accuracy(smaller)
                yield Warning(
                    code="accuracy_rises_with_epsilon",
                    message=f"{larger.name}: accuracy rises by {rise:.4f} from epsilon"
                    f" {smaller.params['epsilon']} to {larger.params['epsilon']}; the attack is not"
                    " converged or gradients are masked: more steps or restarts, or another loss, show which",
                    evidence={"smaller": _evidence(smaller), "larger": _evidence(larger)},
                )


def _strongest_by_epsilon(group: Sequence[EvaluationResult]) -> list[EvaluationResult]:
    ordered = sorted(group, key=lambda evaluation: (_epsilon(evaluation), _accuracy(evaluation)))
    return [next(same) for _, same in groupby(ordered, key=_epsilon)]


def _out_of_order(attacks: Sequence[tuple[_Attack, Sequence[_Attack]]], order: _Order) -> Iterable[Warning]:
    """Compares each weaker attack with the strongest setting of each comparable stronger one."""
    # To beat a black box, the best white box is enough; noise and single steps have to be beaten by every
    # attack.
    for (weaker, threat), alike in attacks:
        if not order.weaker(threat):
            continue
        rivals = [rival for rival, other in alike if order.stronger(other)]
        for stronger in _best(rivals, by_name=order.by_name):
            if _clearly_more(stronger, weaker):
                yield Warning(
                    code=order.code,
                    message=f"{weaker.name} breaks more examples than {stronger.name} at epsilon"
                    f" {weaker.params['epsilon']}: {order.remedy}",
                    evidence={weaker.name: _evidence(weaker), stronger.name: _evidence(stronger)},
                )


def _best(rivals: Sequence[EvaluationResult], *, by_name: bool) -> list[EvaluationResult]:
    """The evaluation with the lowest accuracy, or the lowest of each name, in the order of the job."""
    names: dict[str, list[EvaluationResult]] = {}
    for rival in rivals:
        names.setdefault(rival.name if by_name else "", []).append(rival)
    return [min(same, key=_accuracy) for same in names.values()]


def _high_at_large_epsilon(attacks: Sequence[_Attack]) -> Iterable[Warning]:
    for attack, threat in attacks:
        n = _metric(attack).n
        few = _of_examples(attack) and round(_accuracy(attack) * n) < MIN_EXAMPLES
        many = _accuracy(attack) > NEAR_ZERO and not few
        remedy = "try attacks that need none (square, spsa)"
        if not _of_examples(attack):
            remedy = "look at zero_gradient, and attack through a smooth approximation (BPDA)"
        full_strength = _fills_the_ball(threat) and not threat.weak and not _harder(attack)
        if full_strength and _norm(attack, threat) == "Linf" and _epsilon(attack) >= LARGE_EPSILON and many:
            yield Warning(
                code="robust_at_large_epsilon",
                message=f"{attack.name}: accuracy is {_accuracy(attack):.4f} at epsilon"
                f" {attack.params['epsilon']}, where any model should fall to near 0;"
                f" gradients may be masked: {remedy}",
                evidence=_evidence(attack),
            )


def _more_effort_less_success(attacks: Sequence[EvaluationResult]) -> Iterable[Warning]:
    for effort in EFFORT:
        able = [attack for attack in attacks if isinstance(attack.params.get(effort), int)]
        for group in _groups(able, (effort,)):
            ordered = sorted(group, key=_value_of(effort))
            for less, more in pairwise(ordered):
                if less.params[effort] < more.params[effort] and _clearly_more(more, less):
                    yield Warning(
                        code="accuracy_rises_with_effort",
                        message=f"{more.name}: accuracy rises from {_accuracy(less):.4f} to"
                        f" {_accuracy(more):.4f} as {effort} go from {less.params[effort]} to"
                        f" {more.params[effort]}; the attack wanders: try a smaller step size, and believe"
                        " the lower accuracy",
                        evidence={
                            "less": _evidence(less) | {effort: less.params[effort]},
                            "more": _evidence(more) | {effort: more.params[effort]},
                        },
                    )


def _value_of(parameter: str) -> Callable[[EvaluationResult], tuple[float, float]]:
    return lambda evaluation: (evaluation.params[parameter], _accuracy(evaluation))


def _groups(attacks: Sequence[EvaluationResult], free: Sequence[str]) -> Iterable[list[EvaluationResult]]:
    groups: dict[str, list[EvaluationResult]] = {}
    for attack in attacks:
        rest = {key: _plain(value) for key, value in attack.params.items() if key not in free}
        key = json.dumps([attack.name, attack.backend, rest, attack.data], sort_keys=True, default=str)
        groups.setdefault(key, []).append(attack)
    return groups.values()


def _plain(value: Any) -> Any:
    """A fraction like "8/255" as a number; anything else as it is."""
    try:
        return fraction_value(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _on_same_terms(attacks: Sequence[_Attack]) -> list[tuple[_Attack, list[_Attack]]]:
    """Each attack with the attacks in the same ball around the same examples, itself included.

    Only attacks that any wrong answer satisfies; in the order of the job.
    """
    kept = [attack for attack in attacks if not _harder(attack[0])]
    sets: list[dict[str, Any]] = []
    groups: dict[tuple[str, str, int], list[tuple[float, int]]] = {}
    for place, attack in enumerate(kept):
        data = attack[0].data
        if data not in sets:
            sets.append(data)
        group = (_norm(*attack), _accuracy_name(attack[0]), sets.index(data))
        groups.setdefault(group, []).append((_epsilon(attack[0]), place))
    near: dict[int, list[_Attack]] = {}
    for places in (sorted(group) for group in groups.values()):
        radii = [radius for radius, _ in places]
        for radius, place in places:
            same = slice(bisect_left(radii, radius - 1e-9), bisect_right(radii, radius + 1e-9))
            near[place] = [kept[other] for other in sorted(other for _, other in places[same])]
    return [(attack, near[place]) for place, attack in enumerate(kept)]


def _harder(evaluation: EvaluationResult) -> bool:
    return any(evaluation.params.get(parameter) for parameter in HARDER)


def _clearly_more(a: EvaluationResult, b: EvaluationResult) -> bool:
    """Whether accuracy is higher in `a` by more than the tolerance and, for examples, at least two."""
    difference = _accuracy(a) - _accuracy(b)
    if not _of_examples(a):
        return difference > TOLERANCE
    n = min(_metric(a).n, _metric(b).n)
    examples = round(difference * n)
    return examples >= MIN_EXAMPLES and examples > TOLERANCE * n


def _is_attack(evaluation: EvaluationResult) -> bool:
    attacked = "epsilon" in evaluation.params or "attack_success_rate" in evaluation.metrics
    known = [evaluation.metrics.get(name) for name in ACCURACIES]
    return attacked and any(metric is not None and metric.value is not None for metric in known)


def _norm(evaluation: EvaluationResult, threat: Threat) -> str:
    return str(evaluation.params.get("norm") or threat.norm)


def _epsilon(evaluation: EvaluationResult) -> float:
    return fraction_value(evaluation.params["epsilon"])


def _of_examples(evaluation: EvaluationResult) -> bool:
    """Whether accuracy is a share of examples, not of pixels."""
    return _accuracy_name(evaluation) != ACCURACIES[-1]


def _accuracy_name(evaluation: EvaluationResult) -> str:
    return next(name for name in ACCURACIES if name in evaluation.metrics)


def _metric(evaluation: EvaluationResult) -> Metric:
    return evaluation.metrics[_accuracy_name(evaluation)]


def _accuracy(evaluation: EvaluationResult) -> float:
    value = _metric(evaluation).value
    assert value is not None, "only evaluations with an accuracy are compared"
    return value


def _evidence(evaluation: EvaluationResult) -> dict[str, Any]:
    evidence = {_accuracy_name(evaluation): _accuracy(evaluation), "n": _metric(evaluation).n}
    known = evaluation.params.get("epsilon") is not None
    return {"epsilon": evaluation.params["epsilon"], **evidence} if known else evidence
