"""Counters of nodes: all that a worker counts is taken, all else is refused, and /metrics stays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx

from assay.service.client.transport import authorization
from assay.service.contract.fleet.gateway import CounterPart
from assay.service.gateway.counters import ERRORS, UNKNOWN, known_sums
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


UNKNOWN_PARTS = (
    part("assay_shard_seconds_sum"),
    part("assay_shard_seconds_bucket", **HELD),
    part("assay_shard_seconds_bucket", le="3", **HELD),
    part("assay_examples_total"),
    part("assay_examples_total", device="tpu"),
    part("assay_examples_total", device="cpu", more="a"),
    part(FAILED, kind="a", error="out_of_memory"),
    part("assay_examples", **DEVICE),
    part("assay_anything_total", 1e9),
    part("assay_webhook_deliveries_total", outcome="delivered"),
)


def test_unknown_counters_of_a_newer_node_are_dropped_and_counted(http: httpx.Client, store: Store) -> None:
    header = authorization(store.keys.create("n", ["worker"], tenant="pool")[1])
    reader = authorization(store.keys.create("r", ["read"])[1])
    told = [part("assay_examples_total", 3.0, **DEVICE), *UNKNOWN_PARTS]
    answer = http.post("/api/v1/worker/counters", json={"counters": told}, headers=header)
    assert answer.status_code == 200, answer.text
    assert store.overview().counters == {
        ("assay_examples_total", (("device", "cpu"),)): 3.0,
        (UNKNOWN, ()): float(len(UNKNOWN_PARTS)),
    }
    shown = http.get("/metrics", headers=reader)
    assert shown.status_code == 200
    assert f"{UNKNOWN} {len(UNKNOWN_PARTS)}.0" in shown.text
    assert "anything" not in shown.text


def test_an_amount_below_zero_is_refused(http: httpx.Client, store: Store) -> None:
    header = authorization(store.keys.create("n", ["worker"], tenant="pool")[1])
    told = [part("assay_examples_total", 3.0, **DEVICE), part("assay_examples_total", -1.0, **DEVICE)]
    answer = http.post("/api/v1/worker/counters", json={"counters": told}, headers=header)
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["details"][0]["loc"] == ["counters", 1, "amount"]
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
