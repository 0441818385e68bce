"""Counts of supervisors and the reaper reach the database exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from assay.service.contract.fleet.worker_records import GpuMemory
from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.workers import Counters
from assay.service.store.store import Store
from assay.workers.supervision.counters import LEAST_REPORTS, WorkerCounters
from assay.workers.supervision.reaper import Reaper
from tests.support.jobs import claim, planned
from tests.support.workers import away, ended, settings, submit, submit_training, supervising

DEVICE = (("device", "cpu"),)
GIB = 2**30


def counted(store: Store, name: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {labels: value for (found, labels), value in store.overview().counters.items() if found == name}


def gpu(busy: float, reserved: int) -> GpuMemory:
    return {"name": "H100", "total": 80 * GIB, "used": 20 * GIB, "reserved": reserved, "busy": busy}


@pytest.mark.parametrize(
    ("busy", "held", "workers", "proposed"),
    [
        (0.2, 6 * GIB, 1, 4),  # 0.9 / 0.2
        (0.2, 30 * GIB, 1, 2),  # the memory is enough for two
        (0.2, 41 * GIB, 1, None),
        (0.95, 6 * GIB, 1, None),
        (0.45, 6 * GIB, 4, 8),  # of all four
        (0.0, GIB, 1, 16),
        (0.2, 6 * GIB, 0, None),
    ],
)
def test_workers_for_a_gpu_are_proposed_by_its_busy_share_and_memory(
    busy: float, held: int, workers: int, proposed: int | None
) -> None:
    counters = WorkerCounters(workers)
    for number in range(LEAST_REPORTS):
        assert not counters.gauges.get("proposal")
        counters.gauge("gpu", gpu(busy, held if number == 7 else 0))
    counters.gauge("gpu", None)  # it outlives its evaluator
    said = counters.gauges.get("proposal", "")
    if proposed is None:
        assert said == ""
        return
    assert said == (
        f"its GPU was busy {busy:.0%} of the time in 120 reports of evaluators, and this worker"
        f" held at most {held:,} bytes: ASSAY_WORKERS_PER_GPU={proposed} may use it better than {workers}"
    )


def test_nothing_is_proposed_where_the_busy_share_is_unknown() -> None:
    counters = WorkerCounters()
    for _ in range(LEAST_REPORTS):
        counters.gauge("gpu", {"name": "H100", "total": 80 * GIB, "used": 1, "reserved": 1})
    assert "proposal" not in counters.gauges


@pytest.mark.costly
def test_a_job_is_counted(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=3 examples=5 evaluate:crash=once", evaluations=2)
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"
    assert counted(store, "assay_examples_total") == {DEVICE: 30}
    assert counted(store, "assay_forward_passes_total") == {DEVICE: 90}
    assert counted(store, "assay_backward_passes_total") == {DEVICE: 60}
    deaths = counted(store, "assay_evaluator_deaths_total")[()]
    assert deaths == 6
    assert counted(store, "assay_evaluator_starts_total") == {(): deaths + 1}
    failures = counted(store, "assay_shard_failures_total")
    assert failures == {(("error", "evaluator_died"), ("kind", "evaluate")): 6}
    buckets = counted(store, "assay_shard_seconds_bucket")
    assert sum(v for labels, v in buckets.items() if ("kind", "evaluate") in labels) == 12
    assert sum(v for labels, v in buckets.items() if ("kind", "plan") in labels) == 1
    assert min(counted(store, "assay_shard_seconds_sum").values()) > 0


def test_a_training_measures_no_examples(store: Store, tmp_path: Path) -> None:
    job_id = submit_training(store, "")
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"
    assert counted(store, "assay_examples_total") == {}
    assert counted(store, "assay_forward_passes_total") != {}


def test_losses_are_counted_by_the_reaper(store: Store, tmp_path: Path) -> None:
    planned(store, 2)
    dead = ":".join([*lease_owner.worker_id(0).split(":")[:2], "999999999", "1", "0"])
    claim(store, dead)
    claim(store, dead)
    reaper = Reaper(store, settings(tmp_path), device_classes=("cpu",))
    reaper.sweep()
    reaper.sweep()
    assert counted(store, "assay_shard_losses_total") == {(): 2}


def test_what_could_not_be_written_is_written_later(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    counters = WorkerCounters()
    counters.count("n", 2, a="x")
    monkeypatch.setattr(Counters, "add", away(1, Counters.add))
    with pytest.raises(OperationalError):
        counters.write(store.counters)
    counters.count("n", 3, a="x")
    monkeypatch.undo()
    counters.write(store.counters)
    counters.write(store.counters)
    assert counted(store, "n") == {(("a", "x"),): 5}


@pytest.mark.parametrize("error", ["", "Out of memory", "x" * 41, "péché", "a\n"])
def test_an_evaluator_cannot_make_up_labels(store: Store, error: str) -> None:
    planned(store, 1)
    held, counters = claim(store), WorkerCounters()
    counters.failure(held, error)
    counters.failure(held, "out_of_memory")
    counters.write(store.counters)
    assert {dict(labels)["error"] for labels in counted(store, "assay_shard_failures_total")} == {
        "other",
        "out_of_memory",
    }


def test_a_gauge_is_replaced_and_taken_away() -> None:
    counters = WorkerCounters()
    counters.gauge("gpu", {"used": 1})
    counters.gauge("gpu", {"used": 2})
    assert counters.gauges == {"gpu": {"used": 2}}
    counters.gauge("gpu", None)
    assert counters.gauges == {}
