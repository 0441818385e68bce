"""Counters that nodes add to: their names, labels and values are known, so that few series come of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import get_args

from assay.service.api.metrics import DEVICES, LABELS
from assay.service.contract.fleet.gateway import CounterPart
from assay.service.contract.problems import Problems, nearest
from assay.service.store.fleet.workers import SHARD_BOUNDS, CounterKey
from assay.service.store.rows import ShardKind

OTHER = "other"
# As workers name them (`workers/jobs/failures.py`, `workers/supervision`)
ERRORS = frozenset(
    {
        "bad_report",
        "bad_weights",
        "component_missing",
        "data_missing",
        "device_assertion",
        "device_fault",
        "disk_full",
        "evaluator_died",
        "evaluator_raised",
        "invalid_spec",
        "invalid_state",
        "invalid_value",
        "no_progress",
        "nondeterministic_operator",
        "other_data",
        "other_identity",
        "out_of_memory",
        "over_limit",
        "package_missing",
        "training_diverged",
        "unfit",
        "weights_unavailable",
        "worker_raised",
    }
)
VALUES: Mapping[str, tuple[str, ...]] = {
    "device": DEVICES,
    "kind": get_args(ShardKind),
    "le": (*map(str, SHARD_BOUNDS), "+Inf"),
}


def known_sums(counters: Iterable[CounterPart]) -> dict[CounterKey, float]:
    """The amounts by counter; errors of an unknown type count as other.

    Raises InvalidSpec, with each place at fault: an unknown name, label or value.
    """
    problems, sums = Problems(), defaultdict[CounterKey, float](float)
    for index, one in enumerate(counters):
        _check(problems, index, one)
        labels = dict(one.labels)
        if labels.get("error") not in {None, *ERRORS}:
            labels["error"] = OTHER
        sums[one.name, tuple(sorted(labels.items()))] += one.amount
    problems.raise_if_any()
    return dict(sums)


def _check(problems: Problems, index: int, one: CounterPart) -> None:
    place = ("counters", index)
    if one.name not in LABELS:
        message, near = "unknown counter", nearest(one.name, LABELS)
        problems.add((*place, "name"), message, given=one.name, allowed=LABELS, nearest=near)
    elif one.labels.keys() != LABELS[one.name]:
        allowed, given = sorted(LABELS[one.name]), sorted(one.labels)
        problems.add((*place, "labels"), "other labels than the counter's", given=given, allowed=allowed)
    else:
        for label, value in one.labels.items():
            if value not in VALUES.get(label, (value,)):
                problems.add((*place, "labels", label), "unknown", given=value, allowed=VALUES[label])
