"""Limits of a job's work, on its estimate before it is accepted and on its plan before it measures.

Seconds are of computing, on one worker; examples count once for each evaluation or epoch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import EVALUATIONS
from assay.service.contract.problems import Problems
from assay.service.contract.records import PlanWithShards
from assay.service.contract.stored_specs import ComponentReference, UserSpec
from assay.service.submission.estimate import BACKWARD_COST, least_parts

DEVICE_CLASSES = ("cpu", "cuda")
DEADLINE_FACTOR = 10.0
MIN_DEADLINE_SECONDS = 3600.0


@dataclass(frozen=True)
class JobLimits:
    """Limits of a job; None means no limit."""

    seconds: Mapping[str, float | None]  # By device class
    examples: int | None  # In all its evaluations or epochs together

    def excess(self, device: str, seconds: float, examples: float, source: str) -> list[tuple[str, str, str]]:
        """The limits that a job is over: (message, given, allowed) each."""
        found = []
        max_seconds = self.seconds.get(device)
        if max_seconds is not None and seconds > max_seconds:
            given, allowed = f"estimated {seconds:.3g} s", f"at most {max_seconds:.15g} s on {device}"
            message = (
                f"{given} of computing on {device} ({source}); allowed: {allowed} (ASSAY_MAX_JOB_SECONDS)"
            )
            found.append((message, given, allowed))
        if self.examples is not None and examples > self.examples:
            given, allowed = f"{examples:.4g} examples", f"at most {self.examples} examples"
            message = (
                f"{given}, counted once for each evaluation or epoch; allowed: {allowed} (ASSAY_MAX_EXAMPLES)"
            )
            found.append((message, given, allowed))
        return found

    def deadline_seconds(self, device: str, seconds: float) -> float:
        """Ten times a job's estimate; an hour at least, ten times the device class's maximum at most."""
        max_seconds = self.seconds.get(device)
        allowed = max(MIN_DEADLINE_SECONDS, DEADLINE_FACTOR * seconds)
        return allowed if max_seconds is None else min(allowed, DEADLINE_FACTOR * max_seconds)


@dataclass(frozen=True)
class Speed:
    """Seconds of a forward pass per example, the source of the number, and whether it was measured.

    `attacks`: seconds of a nominal pass by the name and parameters of a measured evaluation, and by its name
    alone. An attack that examples leave at their first success makes fewer passes than its nominal ones.
    """

    seconds_per_pass: float
    source: str
    measured: bool = False
    attacks: Mapping[str, float] = field(default_factory=dict)

    def of(self, part: ComponentReference) -> float | None:
        """Seconds of a nominal pass of an evaluation; None where none of its name was measured."""
        return self.attacks.get(part_key(part), self.attacks.get(part["name"]))


def part_key(part: ComponentReference) -> str:
    """An evaluation's name and parameters as a text."""
    return f"{part['name']} {json.dumps(part['params'], sort_keys=True)}"


def measured_attacks(
    catalog: Catalog, work: Iterable[tuple[ComponentReference, float, int]]
) -> dict[str, float]:
    """`Speed.attacks`, of evaluations with their seconds and examples."""
    sums: dict[str, list[float]] = {}
    for part, seconds, examples in work:
        if part["name"] not in catalog.names(*EVALUATIONS):
            continue  # of a package that is gone
        component = catalog.find_evaluation(part["name"])
        forward, backward = component.passes_with(part["params"]) or (1.0, 0.0)
        count = component.repeats_with(part["params"]) or examples
        for key in (part_key(part), part["name"]):
            found = sums.setdefault(key, [0.0, 0.0])
            found[0] += seconds
            found[1] += count * (forward + BACKWARD_COST * backward)
    return {key: seconds / passes for key, (seconds, passes) in sums.items() if seconds > 0 and passes > 0}


FindSpeed = Callable[[str], Speed]  # (device class) to the speed of the job's model on it.


def bounded_estimate(
    catalog: Catalog,
    spec: UserSpec,
    totals: Mapping[str, int | None],
    limits: JobLimits,
    devices: Sequence[str],
    speed_of: FindSpeed,
    data_root: Path | None = None,
) -> dict[str, Any]:
    """`totals` of a valid spec, which `estimate` found, with the seconds and the limits that apply.

    Of the device classes, at least one, the best suited counts. Further keys: "device", "seconds" (None where
    the number of examples is known only when the job is planned), "seconds_from" (in words),
    "seconds_measured", "max_seconds" and "max_examples" (None: no limit). InvalidSpec: the job is over a
    limit even if what is unknown is as small as it can be.
    """
    parts = least_parts(catalog, spec, data_root)

    def seconds_on(device: str) -> float:
        speed = speed_of(device)
        return math.fsum(work.passes * (speed.of(part) or speed.seconds_per_pass) for part, work in parts)

    def share(device: str) -> float:
        return seconds_on(device) / (limits.seconds.get(device) or float("inf"))

    device = min(devices, key=share)
    seconds, speed = seconds_on(device), speed_of(device)
    examples = math.fsum(work.examples for _, work in parts)
    known_parts = sum(speed.of(part) is not None for part, _ in parts)
    source = speed.source
    if known_parts:
        others = "" if known_parts == len(parts) else f"; the others by {speed.source}"
        took = f"evaluations as your last jobs of this model took on {device}"
        source = f"{known_parts} of {len(parts)} {took}{others}"
    problems = Problems()
    loc = ("recipe",) if spec["kind"] == "train" else ("evaluations",)
    for message, given, allowed in limits.excess(device, seconds, examples, source):
        problems.add(loc, message, given=given, allowed=allowed)
    problems.raise_if_any()
    known = all(value is not None for value in totals.values())
    return {
        **totals,
        "device": device,
        "seconds": float(f"{seconds:.3g}") if known else None,
        "seconds_from": source if known else "the number of examples is known when the job is planned",
        "seconds_measured": known and speed.measured,
        "max_seconds": limits.seconds.get(device),
        "max_examples": limits.examples,
    }


def plan_excess(limits: JobLimits, plan: PlanWithShards) -> str | None:
    """Why a plan is over the limits; None for one that is not."""
    examples = sum(abs(shard["stop"] - shard["start"]) for shard in plan["shards"])
    source = "measured when the job was planned"
    found = limits.excess(plan["device"], planned_seconds(plan), examples, source)
    return "; ".join(f"evaluations: {message}" for message, _, _ in found) or None


def planned_seconds(plan: PlanWithShards) -> float:
    """Estimated seconds of a plan; the nominal seconds of its shards for a plan without an estimate."""
    return plan.get("estimated_seconds", sum(shard["cost"] for shard in plan["shards"]))
