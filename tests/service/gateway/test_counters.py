"""Counters of nodes: all that a worker counts is taken, all else is refused, and /metrics stays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.client.transport import authorization
from assay.service.contract.fleet.gateway import CounterPart
from assay.service.gateway.counters import ERRORS, known_sums
from assay.service.store.fleet.workers import CounterKey
from assay.service.store.store import Store
from assay.workers.jobs.failures import NAMED
from assay.workers.supervision.counters import WorkerCounters
from assay.workers.supervision.shard_run import BAD_REPORT
from assay.workers.supervision.warm_evaluator import LAST_ERRORS, UNFIT, UNFIT_WORKER
from tests.support.jobs import claim, outcome, planned

ROOT = Path(__file__).resolve().parents[3]
DEVICE = {"device": "cpu"}
HELD = {"device": "cpu", "kind": "train"}
FAILED = "assay_shard_failures_total"


def part(name: str, amount: float = 1.0, **labels: str) -> dict[str, Any]:
    return {"name": name, "labels": labels, "amount": amount}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (part("assay_shard_seconds_sum"), "other labels than the counter's"),
        (part("assay_shard_seconds_bucket", **HELD), "other labels than the counter's"),
        (part("assay_shard_seconds_bucket", le="3", **HELD), "unknown"),
        (part("assay_examples_total"), "other labels than the counter's"),
        (part("assay_examples_total", device="tpu"), "unknown"),
        (part("assay_examples_total", device="cpu", more="a"), "other labels than the counter's"),
        (part(FAILED, kind="a", error="out_of_memory"), "unknown"),
        (part("assay_examples", **DEVICE), "unknown counter"),
        (part("assay_anything_total"), "unknown counter"),
        (part("assay_webhook_deliveries_total", outcome="delivered"), "unknown counter"),
        (part("assay_examples_total", -1.0, **DEVICE), "must be at least 0"),
    ],
)
def test_unknown_counters_are_refused_and_metrics_stay(
    http: httpx.Client, store: Store, wrong: dict[str, Any], said: str
) -> None:
    header = authorization(store.keys.create("n", ["worker"], tenant="pool")[1])
    right = part("assay_examples_total", 3.0, **DEVICE)
    answer = http.post("/api/v1/worker/counters", json={"counters": [right, wrong]}, headers=header)
    assert answer.status_code == 422, answer.text
    (detail,) = answer.json()["error"]["details"]
    assert "counters" in detail["loc"]
    assert 1 in detail["loc"]
    assert said in detail["message"]
    assert store.overview().counters == {}, "nothing is added"


def test_an_unknown_error_is_another() -> None:
    told = [CounterPart(**part(FAILED, kind="train", error=one)) for one in ("a", "b", "disk_full")]
    assert known_sums(told) == {
        (FAILED, (("error", "other"), ("kind", "train"))): 2.0,
        (FAILED, (("error", "disk_full"), ("kind", "train"))): 1.0,
    }


def test_whatever_a_worker_counts_is_taken(store: Store) -> None:
    planned(store, 1)
    held, counters, written = claim(store), WorkerCounters(), dict[CounterKey, float]()

    class Sums:
        def add(self, amounts: Any) -> None:
            written.update(amounts)

    for seconds in (0.5, 100.0, 1e6):
        counters.shard(held, seconds)
    counters.outcome(held, outcome(held))
    counters.failure(held, "disk_full")
    source = "".join(path.read_text() for path in (ROOT / "workers").rglob("*.py"))
    for name in re.findall(r"counters\.count\(\s*\"(\w+)\"", source):
        counters.count(name)
    counters.write(Sums())
    told = [
        CounterPart(name=name, labels=dict(labels), amount=value) for (name, labels), value in written.items()
    ]
    assert known_sums(told) == written


def test_errors_of_workers_have_their_names() -> None:
    source = "".join(path.read_text() for path in (ROOT / "workers").rglob("*.py"))
    written = {*re.findall(r"error_type=\"(\w+)\"", source), *re.findall(r"\.fail\(\"(\w+)\", ", source)}
    written |= {name for name, _ in NAMED.values()} | {BAD_REPORT, UNFIT_WORKER, *UNFIT, *LAST_ERRORS}
    assert {"over_limit", "worker_raised", "out_of_memory"} <= written
    assert written <= ERRORS
