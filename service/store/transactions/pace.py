"""How fast a job runs: the planned cost of each evaluation, and the seconds of its done part.

A plan's costs are nominal: an attack that stops at its first success takes less, an evaluation that waits for
files more. So each evaluation has its measured speed. Evaluations to come are expected at the speed of those
that cost about as much, and of the forward passes that the plan has timed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from assay.service.contract.records import TrainingSpeed
from assay.service.contract.states import JobState

PLAN_WEIGHT = 0.1  # The plan's timing, beside 1 for an evaluation of the same cost.
ROUNDING = 1e-9  # of sums of costs, relative
GUESS_WEIGHT = 0.05  # Share of an evaluation that the guess counts for once it is measured.
# The time left is unknown before so much of the planned cost, or so many seconds, are measured, and while an
# evaluation is left that costs more than `ALIKE` times what any measured evaluation costs. An evaluation is
# measured after a quarter of its cost, or after so many seconds.
MIN_SHARE, MIN_SECONDS = 0.02, 60.0
SHORT = 10.0  # Seconds of running before any time left is told: a job that ends before has no use for it.
QUARTER, ALIKE = 0.25, 4.0

# "evaluations": number to [planned cost, done cost, seconds of its shards]; "planned": seconds for a unit of
# cost, by the plan's passes; "at": last measurement; "before": seconds before the present attempt; "waited":
# seconds of an evaluation since its last progress; "left": seconds until the end, as told; "training": a
# training's `TrainingSpeed`.
PaceJson = dict[str, Any]


class Pace(Protocol):
    """Columns of `jobs`, for the estimate."""

    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def paced_at(self) -> float | None: ...  # noqa: D102
    @property
    def paced_from(self) -> float: ...  # noqa: D102
    @property
    def cost_done(self) -> float: ...  # noqa: D102
    @property
    def cost_total(self) -> float | None: ...  # noqa: D102
    @property
    def pace(self) -> PaceJson | None: ...  # noqa: D102


def new_pace(costs: Iterable[tuple[int, float]], estimated_seconds: float | None) -> PaceJson:
    """The pace of a job that has just been planned."""
    totals: dict[str, list[float]] = {}
    for evaluation, cost in costs:
        totals.setdefault(str(evaluation), [0.0, 0.0, 0.0])[0] += cost
    whole = sum(total for total, _, _ in totals.values())
    planned = estimated_seconds / whole if estimated_seconds and whole else None
    return {"evaluations": totals, "planned": planned, "at": None, "before": 0.0}


def begun_pace(pace: PaceJson) -> PaceJson:
    """The pace at an attempt's first measuring claim: earlier seconds were of other workers."""
    return {**pace, "before": sum(part[2] for part in pace["evaluations"].values()), "left": None}


def paced(
    pace: PaceJson, evaluation: int, cost: float, seconds: float, at: float, since: float | None
) -> PaceJson:
    """The pace after so much more of an evaluation; lost work has negative cost.

    `since`: time of the attempt's first measuring claim; None while no shard of it is claimed.
    """
    key = str(evaluation)
    waited: dict[str, float] = pace.get("waited", {})
    if cost == 0:
        # Counted with the next progress: time without cost would make the estimate climb.
        return {**pace, "waited": {**waited, key: waited.get(key, 0.0) + max(0.0, seconds)}}
    if cost > 0:
        seconds = max(0.0, seconds) + waited.get(key, 0.0)
        pace = {**pace, "waited": {name: value for name, value in waited.items() if name != key}}
    total, done, spent = pace["evaluations"].get(key, [0.0, 0.0, 0.0])
    after = max(0.0, done + cost)
    spent = spent + max(0.0, seconds) if cost >= 0 else spent * after / done if done else 0.0
    now = {**pace, "evaluations": {**pace["evaluations"], key: [total, after, spent]}, "at": at}
    return now if since is None else {**now, "left": _steady(pace, now, since)}


def _steady(before: PaceJson, now: PaceJson, since: float) -> float | None:
    """Seconds left as measured, which climb by the time that passed at most: a slow batch is no jump."""
    found = _left_seconds(now, since)
    last: float | None = before.get("left")
    if found is None or last is None:
        return found
    return min(found, last + max(0.0, float(now["at"]) - float(before["at"])))


def cost_share(row: Pace) -> float | None:
    """Done part of the planned cost, in [0, 1]; None before the plan."""
    return min(1.0, max(0.0, row.cost_done / row.cost_total)) if row.cost_total else None


def training_speed(row: Pace) -> TrainingSpeed:
    """What a running training last reported; empty for other jobs."""
    told: TrainingSpeed = (row.pace or {}).get("training", {}) if row.state == JobState.RUNNING else {}
    return told


def eta_seconds(row: Pace, now: float) -> float | None:
    """Seconds until the job is done; None when unknown, as while its shards are merged or computed again."""
    # The cost left of each evaluation, at its own speed, by as many shards at a time as ran on average since
    # the attempt's first measuring claim. Jobs without evaluations or of earlier versions: at their mean
    # speed.
    if row.state not in (JobState.STARTING, JobState.RUNNING) or row.paced_at is None or not row.cost_total:
        return None
    done = row.cost_done - row.paced_from
    left = row.cost_total - row.cost_done
    if done <= 0 or left <= ROUNDING * row.cost_total:
        return None
    if row.pace is not None and row.pace["evaluations"]:
        steady: float | None = row.pace.get("left")
        planned, measured, _ = _sums(row.pace)
        if steady is None or planned <= measured:
            return None
        return round(steady * left / (planned - measured), 1)  # Reports may be ahead of the measurements.
    return round(max(now - row.paced_at, 0.0) * left / done, 1)


def measured_speed(pace: PaceJson, evaluation: int) -> float | None:
    """Seconds for a unit of an evaluation's cost, at first as in others or as planned; None: unknown."""
    parts: dict[str, list[float]] = pace["evaluations"]
    total, done, spent = parts.get(str(evaluation), [0.0, 0.0, 0.0])
    return _speed(total, done, spent, [*parts.values()], pace["planned"]) or None


def _sums(pace: PaceJson) -> tuple[float, float, float]:
    """Planned cost, done cost and seconds of all evaluations."""
    planned, done, spent = map(sum, zip(*pace["evaluations"].values(), strict=True))
    return planned, done, spent


def _left_seconds(pace: PaceJson, since: float) -> float | None:
    """Seconds for the cost that is not measured; None while too little is measured."""
    parts: list[list[float]] = list(pace["evaluations"].values())
    planned, done, spent = _sums(pace)
    wall: float = pace["at"] - since
    spent -= float(pace["before"])
    few = done < MIN_SHARE * planned and spent < MIN_SECONDS
    if few or done <= 0 or spent <= 0 or wall < SHORT or planned <= done or not _is_known(parts):
        return None
    compute = sum(
        max(0.0, total - part) * _speed(total, part, seconds, parts, pace["planned"])
        for total, part, seconds in parts
    )
    return compute / (spent / wall)


def _is_known(parts: Sequence[Sequence[float]]) -> bool:
    """Whether the dearest evaluation that is left is like a measured evaluation."""
    measured = [total for total, done, spent in parts if done >= QUARTER * total or spent >= MIN_SECONDS]
    left = [total for total, done, _ in parts if done < total]
    return max(left, default=0.0) <= ALIKE * max(measured, default=0.0)


def _speed(
    total: float, done: float, spent: float, parts: Sequence[Sequence[float]], planned: float | None
) -> float:
    """Seconds for a unit of an evaluation's cost: measured, at first as in others of about its cost."""
    guesses = [] if planned is None else [(PLAN_WEIGHT, planned)]
    guesses += [
        ((min(total, other) / max(total, other)) ** 2, seconds / cost)
        for other, cost, seconds in parts
        if cost > 0 and seconds > 0 and min(total, other) > 0
    ]
    weights = sum(weight for weight, _ in guesses)
    # The geometric mean: a plan that is far too slow by its passes counts little beside a measurement.
    guess = math.exp(sum(weight * math.log(speed) for weight, speed in guesses) / weights) if weights else 0.0
    own = GUESS_WEIGHT * total
    return (spent + own * guess) / (done + own) if done + own else 0.0
