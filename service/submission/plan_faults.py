"""What is wrong with a plan: its types are right, its numbers may be anything.

Evaluators and nodes of the gateway send plans, and code that got out of a model writes both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.fleet.worker_records import Requirements
from assay.service.contract.logs import escaped
from assay.service.contract.records import PlannedCompile, PlannedShard, PlanWithShards
from assay.service.contract.stored_specs import EvaluateJobSpec
from assay.service.contract.typed_values import MAX_INTEGER, shown
from assay.service.submission.limits import DEVICE_CLASSES, planned_seconds

MAX_SHARDS, MAX_EXAMPLES = 100_000, 10**15  # Of a job; sums over jobs stay within 64 bits
MAX_SECONDS, MAX_FLOPS = 1e9, 1e30
MAX_REASON, FAULTS_SHOWN = 200, 20
DIGEST = re.compile(r"[0-9A-Za-z:._+-]{0,128}")


def check_plan(plan: PlanWithShards, requirements: Sequence[Requirements], spec: EvaluateJobSpec) -> None:
    """Raises InvalidSpec, with each place at fault: a plan or its requirements are not of a job's spec.

    `requirements`: as `Shards.finish_plan` takes them, of each evaluation or none.
    """
    found = [*islice(faults_of_plan(plan, spec), FAULTS_SHOWN)]
    details = [ErrorDetail(loc=["body", "plan"], message=one[:300]) for one in found]
    count = len(spec["evaluations"])
    if len(requirements) not in (0, count):
        said = f"requirements: of {len(requirements)} evaluations, the job has {count}"
        details.append(ErrorDetail(loc=["body", "requirements"], message=said))
    if details:
        raise InvalidSpec(f"the worker's report is none: {details[0].message}", details)


def check_training_plan(plan: Any) -> None:
    """Raises InvalidSpec, with each place at fault: what a training planned is no plan of a training."""
    found = [*islice(faults_of_facts(plan, 1, None), FAULTS_SHOWN)]
    if found:
        details = [ErrorDetail(loc=["body", "extra", "plan"], message=one[:300]) for one in found]
        raise InvalidSpec(f"the worker's report is none: {found[0]}", details)


def faults_of_plan(plan: PlanWithShards, spec: EvaluateJobSpec) -> Iterable[str]:
    """Every fault of a plan, or the first few of many: place, given, allowed."""
    yield from faults_of_facts(plan, len(spec["evaluations"]), spec["execution"].get("compile"))
    yield from not_finite(plan, ("forward_flops",), MAX_FLOPS)
    yield from not_finite(plan, ("estimated_seconds", "deadline_seconds"))
    shards = plan["shards"]
    if len(shards) > MAX_SHARDS:
        yield f"shards: {len(shards):,}; allowed: {MAX_SHARDS:,}"
        return
    numbers = {(shard["evaluation"], shard["number"]) for shard in shards}
    if len(numbers) < len(shards) or not all(0 <= number < MAX_SHARDS for _, number in numbers):
        yield f"its shards have not each a number of their own, from 0 to {MAX_SHARDS - 1:,}"
    wanted = spec["execution"]["device"]
    if plan["device"] not in DEVICE_CLASSES or wanted not in ("auto", plan["device"]):
        yield f"device: {shown(plan['device'])}, where the job asks for {wanted}"
    found: dict[int, list[PlannedShard]] = {index: [] for index in range(len(plan["evaluations"]))}
    for shard in sorted(shards, key=lambda one: one["start"]):
        found.setdefault(shard["evaluation"], []).append(shard)
    for index, evaluation in enumerate(plan["evaluations"]):
        yield from _faults_of_ranges(found[index], evaluation["n"], index)
    if len(found) > len(plan["evaluations"]):
        yield "shards: a shard is of no evaluation of the job"
    if sum(one["n"] for one in plan["evaluations"]) > MAX_EXAMPLES:
        yield f"evaluations: of more examples than {MAX_EXAMPLES:,}"
    if math.isfinite(seconds := planned_seconds(plan)) and seconds > MAX_SECONDS:
        yield f"shards: of {seconds:.3g} s; allowed: at most {MAX_SECONDS:g} s"
    yield from _not_finite_within(plan)


def _faults_of_compile(found: PlannedCompile | None, asked: str | None) -> Iterable[str]:
    if found is None:
        return
    if asked != "auto":
        yield "compile: the job leaves no choice to the plan"
    yield from not_finite(found, ("seconds", "ratio"))
    if found["refused"] is not None:
        found["refused"] = escaped(found["refused"][:MAX_REASON])


def _faults_of_ranges(shards: Sequence[PlannedShard], n: int, evaluation: int) -> Iterable[str]:
    end = 0
    for shard in shards:
        if shard["start"] != end or shard["stop"] <= end:
            yield f"evaluations[{evaluation}]: its shards do not follow each other"
            return
        end = shard["stop"]
        yield from not_finite(shard, ("cost",))
    if end != n:
        yield f"evaluations[{evaluation}]: its shards have {end} examples, the evaluation {n}"


def _not_finite_within(plan: PlanWithShards) -> Iterable[str]:
    waiting: list[tuple[str, object]] = [*plan.items()]
    while waiting:
        where, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{where}.{key}"[:MAX_REASON], one) for key, one in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{where}[{index}]", one) for index, one in enumerate(value)]
        elif isinstance(value, float) and not math.isfinite(value):
            yield f"{where}: {value}; allowed: finite numbers"


def faults_of_facts(plan: Any, evaluations: int, compile_asked: str | None) -> Iterable[str]:
    """Faults of what plans of evaluations and trainings have; cuts a reason against compiled passes."""
    yield from _faults_of_compile(plan.get("compile"), compile_asked)
    if len(plan["evaluations"]) != evaluations:
        yield f"it plans {len(plan['evaluations'])} evaluations, the job has {evaluations}"
    for one in plan["evaluations"]:
        yield from not_counts(one, ("n", "available", "classes", "repeats", "seen", "cut", "training"))
        yield from not_finite(one, ("peak", "published_peak"))
    yield from not_counts(plan, ("batch_size", "image_size", "example_bytes", "parameters"))
    if plan["batch_size"] == 0:
        yield "batch_size: 0"
    yield from not_like(plan, ("weights_sha256",), DIGEST)
    yield from not_like(plan["data_sha256"], plan["data_sha256"], DIGEST)


def not_counts(found: Mapping[str, Any], names: Iterable[str]) -> Iterable[str]:
    """Faults of the named values that are there, and below 0 or of more than 64 bits."""
    for name in names:
        if found.get(name) is not None and not 0 <= found[name] <= MAX_INTEGER:
            yield f"{name}: {shown(found[name])}; allowed: 0 or more"


def not_finite(found: Mapping[str, Any], names: Iterable[str], most: float = MAX_SECONDS) -> Iterable[str]:
    """Faults of the named values that are there, and not from 0 to `most`."""
    for name in names:
        value = found.get(name)
        if value is not None and not (math.isfinite(value) and 0 <= value <= most):
            yield f"{name}: {shown(value)}; allowed: finite numbers from 0 to {most:g}"


def not_like(found: Mapping[str, Any], names: Collection[str], pattern: re.Pattern[str]) -> Iterable[str]:
    """Faults of the named texts that are there, and not of a pattern."""
    for name in names:
        if found.get(name) is not None and not pattern.fullmatch(found[name]):
            yield f"{name[:60]}: {shown(found[name])}"
