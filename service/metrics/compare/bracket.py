"""Robust accuracy as a bracket: verified from below, attacked from above, over the same examples.

For a ball of radius e: an example verified at a radius of e or more is robust there, and one broken at a
radius of e or less is not. So the robust accuracy lies between the share of the former and the share that no
attack broke, the worst case per example over all attacks. An example that is both contradicts itself: the
verifier, an attack or the model's arithmetic has a defect. Smoothed classifiers have no part in it: they are
another model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import Any, NamedTuple, Protocol

from assay.service.contract.fractions import fraction_value
from assay.service.contract.results import Bracket, EvaluationResult, Metric, Warning, data_label
from assay.service.contract.threat import Knowledge, ThreatOf
from assay.service.metrics.compare.sanity_checks import HARDER
from assay.service.metrics.paired import Rows
from assay.service.metrics.statistics.estimates import proportion
from assay.service.metrics.statistics.security_curve import distances
from assay.service.metrics.tables import verification

COUNTED = ("top1", "median_distance")  # Metrics of an attack: its accuracy, or how far it had to go.
EXPECTED = "expected"  # An attack of a model that draws numbers breaks one draw: another claim.
RANDOM = "random_outputs"
MAX_IDS = 20
SAME = 1e-9  # Radii closer than this are one.
EXAMPLES_A_ROW = 8_000  # Whose flags and ids' hash take as much memory as a row of results.

OutcomesOf = Callable[[int], Sequence[Rows]]
"""The columns of each shard of an evaluation, by its place in the job."""


class Keep(Protocol):
    """Keeps what is made of a job's outcomes, which do not change."""

    def __call__(self, key: Hashable, make: Callable[[], tuple[int, Any]]) -> Any:
        """What is kept for a key, else what `make` gives beside its size in rows of results."""


def _make(key: Hashable, make: Callable[[], tuple[int, Any]]) -> Any:
    """Keeps nothing."""
    del key
    return make()[1]


class _Told(NamedTuple):
    """What an evaluation says about each example, small enough to be kept for each of a job."""

    n: int  # examples
    examples: str  # hash of their ids
    flags: int  # a bit for each example by ids, the first lowest: whether it is verified, or broken


@dataclass(frozen=True)
class _Side:
    """An evaluation that has a part in a bracket."""

    place: int
    name: str
    ball: tuple[str, str, float]
    told: _Told
    verifies: bool


def brackets(
    evaluations: Mapping[int, EvaluationResult],
    outcomes_of: OutcomesOf,
    threat_of: ThreatOf,
    keep: Keep = _make,
) -> tuple[list[Bracket], list[Warning]]:
    """The bracket at every radius of a job's verified rows and attacks, and its contradictions."""
    if not any(verification.METRIC in one.metrics for one in evaluations.values()):
        return [], []
    balls = {place: _ball(one, threat_of) for place, one in evaluations.items()}
    verified = {
        ball[:2]
        for place, ball in balls.items()
        if ball is not None and verification.METRIC in evaluations[place].metrics
    }
    radii: dict[tuple[str, str], set[float]] = {}
    for ball in balls.values():
        if ball is not None and ball[2] is not None:
            radii.setdefault(ball[:2], set()).add(ball[2])
    sides = []
    for place, ball in balls.items():
        if ball is None or ball[:2] not in verified:
            continue
        one, (label, norm, own) = evaluations[place], ball
        # An attack that minimises the norm tells of every radius: of those that the other rows have.
        asked = (own,) if own is not None else tuple(sorted(radii[ball[:2]]))
        minimised = norm if own is None else None
        told = keep(("told", place, asked), partial(_sized, outcomes_of, place, minimised, asked))
        sides += [
            _Side(place, one.name, (label, norm, radius), said, verification.METRIC in one.metrics)
            for radius, said in zip(asked, told, strict=True)
            if said is not None
        ]

    def ids(place: int, flags: int) -> list[str]:
        found: list[str] = keep(("ids", place, flags), lambda: _named(outcomes_of(place), flags))
        return found

    found: list[Bracket] = []
    warnings: list[Warning] = []
    for group in _groups(sides):
        points = [_point(group, epsilon, ids) for epsilon in _radii(group)]
        found += points
        warnings += [_contradiction(point) for point in points if point.contradictions]
    return found, warnings


def with_contradictions(
    evaluations: Mapping[int, EvaluationResult],
    outcomes_of: OutcomesOf,
    threat_of: ThreatOf,
    keep: Keep = _make,
) -> dict[int, EvaluationResult]:
    """The evaluations; evaluations in a ball with a contradiction, verified or attacked, have its warning."""
    warnings = brackets(evaluations, outcomes_of, threat_of, keep)[1]
    found = dict(evaluations)
    for place, one in evaluations.items() if warnings else ():
        ball = _ball(one, threat_of)
        own = [
            warning
            for warning in warnings
            if ball is not None and ball[:2] == (warning.evidence["data"], warning.evidence["norm"])
        ]
        found[place] = one.model_copy(update={"warnings": [*one.warnings, *own]})
    return found


def _ball(one: EvaluationResult, threat_of: ThreatOf) -> tuple[str, str, float | None] | None:
    """Data, norm and radius (None where minimised) of a verified row or an attack that counts; else None."""
    epsilon, random = one.params.get("epsilon"), any(warning.code == RANDOM for warning in one.warnings)
    if one.protocol != "pixel" or random:
        return None
    label, radius = data_label(one.data), None if epsilon is None else fraction_value(epsilon)
    if verification.METRIC in one.metrics:
        return label, str(one.params["norm"]), radius
    threat = threat_of(one.name)
    harder = any(one.params.get(parameter) for parameter in HARDER)
    if threat is None or threat.knowledge is Knowledge.NOISE or harder or not {*COUNTED} & {*one.metrics}:
        return None
    if radius is None and not threat.minimum_norm:
        return None
    return label, str(one.params.get("norm") or threat.norm), radius


def _sized(
    outcomes_of: OutcomesOf, place: int, minimised: str | None, radii: Sequence[float]
) -> tuple[int, list[_Told | None]]:
    """What the outcomes of an evaluation say at each radius; without a norm, at their own."""
    shards = outcomes_of(place)
    told = [_told(_within(shards, minimised, radius) if minimised else shards) for radius in radii]
    return 1 + sum(1 + one.n // EXAMPLES_A_ROW for one in told if one is not None), told


def _within(shards: Sequence[Rows], norm: str, radius: float) -> list[Rows]:
    """The outcomes of an attack that minimises a norm, as if a ball had this radius; none without norms."""
    found: list[Rows] = []
    for shard in shards:
        away = None if EXPECTED in shard else distances(shard, norm)
        if away is None:
            return []
        found.append({"id": shard["id"], "correct": [one > radius for one in away]})
    return found


def _told(shards: Sequence[Rows]) -> _Told | None:
    """What the outcomes of an evaluation say; None where they cannot have a part."""
    verifies = any(verification.COLUMN in shard for shard in shards)
    column = verification.COLUMN if verifies else "correct"
    if not shards or any(column not in shard or EXPECTED in shard for shard in shards):
        return None
    pairs = sorted(
        (str(example), bool(flag) is verifies)
        for shard in shards
        for example, flag in zip(shard["id"], shard[column], strict=True)
    )
    ids = json.dumps([example for example, _ in pairs])
    bits = "".join("01"[flag] for _, flag in reversed(pairs))
    return _Told(len(pairs), hashlib.sha256(ids.encode()).hexdigest(), int(bits or "0", 2))


def _named(shards: Sequence[Rows], flags: int) -> tuple[int, list[str]]:
    ids = sorted(str(example) for shard in shards for example in shard["id"])
    found = [example for example, bit in zip(ids, f"{flags:0{len(ids)}b}"[::-1], strict=True) if bit == "1"]
    return len(found), found


def _groups(sides: Sequence[_Side]) -> list[list[_Side]]:
    """The sides by data set, norm and set of examples; only groups that verify and attack."""
    groups: dict[tuple[str, str, str], list[_Side]] = {}
    for side in sides:
        groups.setdefault((*side.ball[:2], side.told.examples), []).append(side)
    return [group for group in groups.values() if len({side.verifies for side in group}) == 2]


def _radii(group: Sequence[_Side]) -> list[float]:
    found: list[float] = []
    for epsilon in sorted(side.ball[2] for side in group):
        if not found or epsilon - found[-1] > SAME:
            found.append(epsilon)
    return found


def _point(group: Sequence[_Side], epsilon: float, ids: Callable[[int, int], list[str]]) -> Bracket:
    below = [side for side in group if side.verifies and side.ball[2] >= epsilon - SAME]
    above = [side for side in group if not side.verifies and side.ball[2] <= epsilon + SAME]
    safe, broken = (reduce(or_, (side.told.flags for side in sides), 0) for sides in (below, above))
    (label, norm, _), n = group[0].ball, group[0].told.n
    return Bracket(
        data=label,
        norm=norm,
        epsilon=epsilon,
        n=n,
        verified=_share(safe.bit_count(), n) if below else None,
        attacked=_share(n - broken.bit_count(), n) if above else None,
        verified_by=list(dict.fromkeys(side.name for side in below)),
        attacked_by=list(dict.fromkeys(side.name for side in above)),
        contradictions=ids(group[0].place, safe & broken) if safe & broken else [],
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


def radius_text(point: Bracket) -> str:
    """The radius, in Linf as `2/255` unless it is far below a step of 8-bit pixels."""
    in_steps = point.norm == "Linf" and 255 * point.epsilon >= 0.01
    return f"{255 * point.epsilon:.4g}/255" if in_steps else f"{point.epsilon:.4g}"


def bracket_line(point: Bracket) -> str:
    """The bracket as people read it."""
    ends = [None if one is None else one.value for one in (point.verified, point.attacked)]
    low, high = ("unknown" if value is None else f"{100 * value:.2f} %" for value in ends)
    ball = f"robust accuracy in the {point.norm} ball of {radius_text(point)}"
    loose = "; that none is verified says nothing against the model" if ends[0] == 0 else ""
    return f"{ball}: {low} (verified) to {high} (attacked), n = {point.n}{loose}"
