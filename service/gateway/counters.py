"""Counters that nodes add to: their names, labels and values are known, so that few series come of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import get_args

from assay.service.api.metrics import DEVICES, LABELS
from assay.service.contract.fleet.gateway import CounterPart
from assay.service.store.fleet.workers import SHARD_BOUNDS, CounterKey
from assay.service.store.rows import ShardKind

OTHER = "other"
UNKNOWN = "assay_counters_unknown_total"
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

    Of an unknown name, label or value, as of a node newer than the service, only the number is kept.
    """
    sums = defaultdict[CounterKey, float](float)
    for one in counters:
        labels = dict(one.labels)
        if labels.get("error") not in {None, *ERRORS}:
            labels["error"] = OTHER
        if labels.keys() == LABELS.get(one.name) and _are_known(labels):
            sums[one.name, tuple(sorted(labels.items()))] += one.amount
        else:
            sums[UNKNOWN, ()] += 1
    return dict(sums)


def _are_known(labels: Mapping[str, str]) -> bool:
    return all(value in VALUES.get(label, (value,)) for label, value in labels.items())
