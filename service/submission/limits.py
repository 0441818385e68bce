"""Limits of a job's work, on its estimate before it is accepted and on its plan before it measures.

Seconds are of computing, on one worker; examples count once for each evaluation or epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.contract.problems import Problems
from assay.service.contract.records import PlanWithShards
from assay.service.contract.stored_specs import UserSpec
from assay.service.submission.estimate import least_work

DEVICE_CLASSES = ("cpu", "cuda")
BACKWARD_COST = 2.0  # A backward pass costs about two forward passes.
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
    """Seconds of a forward pass per example, the source of the number, and whether it was measured."""

    seconds_per_pass: float
    source: str
    measured: bool = False


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
    least = least_work(catalog, spec, data_root)

    def seconds_on(device: str) -> float:
        return (least.forward + BACKWARD_COST * least.backward) * speed_of(device).seconds_per_pass

    def share(device: str) -> float:
        return seconds_on(device) / (limits.seconds.get(device) or float("inf"))

    device = min(devices, key=share)
    seconds, speed = seconds_on(device), speed_of(device)
    problems = Problems()
    loc = ("recipe",) if spec["kind"] == "train" else ("evaluations",)
    for message, given, allowed in limits.excess(device, seconds, least.examples, speed.source):
        problems.add(loc, message, given=given, allowed=allowed)
    problems.raise_if_any()
    known = all(value is not None for value in totals.values())
    return {
        **totals,
        "device": device,
        "seconds": float(f"{seconds:.3g}") if known else None,
        "seconds_from": speed.source if known else "the number of examples is known when the job is planned",
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
