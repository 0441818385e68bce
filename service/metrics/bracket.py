"""Robust accuracy as a bracket: verified from below, attacked from above, over the same examples.

For a ball of radius e: an example verified at a radius of e or more is robust there, and one broken at a
radius of e or less is not. So the robust accuracy lies between the share of the former and the share that no
attack broke, the worst case per example over all attacks. An example that is both contradicts itself: the
verifier, an attack or the model's arithmetic has a defect. Smoothed classifiers have no part in it: they are
another model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import Bracket, EvaluationResult, Metric, Warning, data_label
from assay.service.contract.threat import Knowledge, ThreatOf
from assay.service.metrics.estimates import proportion
from assay.service.metrics.paired import Rows
from assay.service.metrics.sanity_checks import HARDER

VERIFIED = "verified_top1"
# An attack of a model that draws random numbers breaks an example in one draw: another claim.
EXPECTED = "expected"
RANDOM = "random_outputs"
MAX_IDS = 20
# Radii closer than this are one.
SAME = 1e-9

OutcomesOf = Callable[[int], Sequence[Rows]]
"""The columns of each shard of an evaluation, by its place in the job."""


@dataclass(frozen=True)
class _Side:
    """What one evaluation says about each example.

    Attributes:
        name: of the evaluation.
        key: data and norm.
        epsilon: radius.
        ids: all examples.
        told: those that are verified, or broken.
        verifies: which of the two.
    """

    name: str
    key: tuple[str, str]
    epsilon: float
    ids: frozenset[str]
    told: frozenset[str]
    verifies: bool


def brackets(
    evaluations: Mapping[int, EvaluationResult], outcomes_of: OutcomesOf, threat_of: ThreatOf
) -> tuple[list[Bracket], list[Warning]]:
    """The bracket at every radius of a job's verified rows and attacks, and its contradictions.

    Args:
        evaluations: by place in the job.
        outcomes_of: their outcomes; asked for only where an evaluation is verified.
        threat_of: threat model of an attack by its name.
    """
    wanted = {place: _ball(one, threat_of) for place, one in evaluations.items()}
    verified = {
        ball[:2]
        for place, ball in wanted.items()
        if ball is not None and VERIFIED in evaluations[place].metrics
    }
    sides = [
        side
        for place, ball in wanted.items()
        if ball is not None and ball[:2] in verified
        if (side := _side(evaluations[place], ball, outcomes_of(place))) is not None
    ]
    found: list[Bracket] = []
    warnings: list[Warning] = []
    for group in _groups(sides):
        points = [_point(group, epsilon) for epsilon in _radii(group)]
        found += points
        warnings += [_contradiction(point) for point in points if point.contradictions]
    return found, warnings


def _ball(one: EvaluationResult, threat_of: ThreatOf) -> tuple[str, str, float] | None:
    """Data, norm and radius of a verified row or of an attack that counts; None of any other row."""
    epsilon, random = one.params.get("epsilon"), any(warning.code == RANDOM for warning in one.warnings)
    if epsilon is None or one.protocol != "pixel" or random:
        return None
    label, radius = data_label(one.data), fraction_value(epsilon)
    if VERIFIED in one.metrics:
        return label, str(one.params["norm"]), radius
    threat = threat_of(one.name)
    harder = any(one.params.get(parameter) for parameter in HARDER)
    if threat is None or threat.knowledge is Knowledge.NOISE or harder or "top1" not in one.metrics:
        return None
    return label, str(one.params.get("norm") or threat.norm), radius


def _side(one: EvaluationResult, ball: tuple[str, str, float], shards: Sequence[Rows]) -> _Side | None:
    verifies = VERIFIED in one.metrics
    column = "verified" if verifies else "correct"
    if not shards or any(column not in shard or EXPECTED in shard for shard in shards):
        return None
    flags = [pair for shard in shards for pair in zip(map(str, shard["id"]), shard[column], strict=True)]
    told = frozenset(example for example, flag in flags if bool(flag) is verifies)
    ids = frozenset(example for example, _ in flags)
    return _Side(one.name, ball[:2], ball[2], ids, told, verifies)


def _groups(sides: Sequence[_Side]) -> list[list[_Side]]:
    """Those of one data set, norm and set of examples; with both sides only."""
    groups: dict[tuple[tuple[str, str], frozenset[str]], list[_Side]] = {}
    for side in sides:
        groups.setdefault((side.key, side.ids), []).append(side)
    return [group for group in groups.values() if len({side.verifies for side in group}) == 2]


def _radii(group: Sequence[_Side]) -> list[float]:
    """All radii of the group in rising order, each once."""
    found: list[float] = []
    for epsilon in sorted(side.epsilon for side in group):
        if not found or epsilon - found[-1] > SAME:
            found.append(epsilon)
    return found


def _point(group: Sequence[_Side], epsilon: float) -> Bracket:
    below = [side for side in group if side.verifies and side.epsilon >= epsilon - SAME]
    above = [side for side in group if not side.verifies and side.epsilon <= epsilon + SAME]
    safe = frozenset[str]().union(*(side.told for side in below))
    broken = frozenset[str]().union(*(side.told for side in above))
    (label, norm), n = group[0].key, len(group[0].ids)
    return Bracket(
        data=label,
        norm=norm,
        epsilon=epsilon,
        n=n,
        verified=_share(len(safe), n) if below else None,
        attacked=_share(n - len(broken), n) if above else None,
        verified_by=list(dict.fromkeys(side.name for side in below)),
        attacked_by=list(dict.fromkeys(side.name for side in above)),
        contradictions=sorted(safe & broken),
    )


def _share(count: int, n: int) -> Metric:
    return proportion(count, n, higher_is_better=True).model_copy(update={"unit": "proportion"})


def _contradiction(point: Bracket) -> Warning:
    count, ids = len(point.contradictions), point.contradictions[:MAX_IDS]
    listed = ", ".join(ids) + ", ..." * (count > MAX_IDS)
    return Warning(
        code="certified_and_broken",
        message=f"{count} of {point.n} examples are verified at {point.norm} radius {point.epsilon:.6g} and"
        f" broken by {', '.join(point.attacked_by)} within it: {listed}. One of the two is wrong, so do not"
        " publish either: this is a defect of the verifier, an attack or the model's arithmetic; report it",
        evidence={
            "data": point.data,
            "norm": point.norm,
            "epsilon": point.epsilon,
            "examples": ids,
            "count": count,
            "verified_by": point.verified_by,
            "attacked_by": point.attacked_by,
        },
    )


def bracket_line(point: Bracket) -> str:
    """The bracket as people read it."""
    ends = [None if one is None else one.value for one in (point.verified, point.attacked)]
    low, high = ("unknown" if value is None else f"{100 * value:.2f} %" for value in ends)
    radius = f"{255 * point.epsilon:.4g}/255" if point.norm == "Linf" else f"{point.epsilon:.4g}"
    ball = f"robust accuracy in the {point.norm} ball of {radius}"
    return f"{ball}: {low} (verified) to {high} (attacked), n = {point.n}"
