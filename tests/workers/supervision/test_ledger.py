"""One life of a shard over every ledger: the same answers, fences and counts."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.errors import NotFound
from assay.service.files.data_store import DataStore
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.rows import Claim, Finished, OutcomeRow
from assay.service.store.store import Store
from assay.workers.gateway import ledger as gateway_ledger
from assay.workers.identity import identity
from assay.workers.staging.publishing import publish
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.ledger import Asked, Heartbeat, WorkLedger
from tests.support import jobs
from tests.support.gateways import ledger_of, node_settings, serving, worker_key
from tests.support.jobs import add, evaluate_spec, planned, told, train_spec
from tests.support.workers import settings

ME = "host:boot:1:2:0"


def asked(**changes: Any) -> Asked:
    values: dict[str, Any] = {
        "worker": ME,
        "device_classes": ("cpu", CHECKS),
        "lease_seconds": 60.0,
        "identity": identity()["digest"],
        "without": (),
        "warm_job": None,
        "warm_shards": 0,
        "devices": 1,
        "lanes": (),
    }
    return Asked(**values | changes)


def heartbeat(**changes: Any) -> Heartbeat:
    values: dict[str, Any] = {
        "worker": ME,
        "host": "host",
        "device_classes": ("cpu",),
        "pid": 1,
        "gauges": {"lacks": {"d1": "it has no GPU"}},
        "devices": 1,
        "name": "host:0",
        "identity": identity()["digest"],
    }
    return Heartbeat(**values | changes)


@pytest.fixture(params=["direct", "gateway"])
def ledger(
    request: pytest.FixtureRequest, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[WorkLedger]:
    if request.param == "direct":
        yield DirectLedger(store, settings(tmp_path / "state"))
        return
    monkeypatch.setattr(gateway_ledger, "STANDING_SECONDS", 0.0)
    with (
        serving(store, tmp_path / "service") as server,
        ledger_of(node_settings(tmp_path / "node", server.url, worker_key(store))) as found,
    ):
        yield found


def outcome(held: Claim, **changes: Any) -> OutcomeRow:
    code = {"version": "1", "commit": None, "source_sha256": "s"}
    provenance: Any = {"code": code, "packages": {}, "device": {"type": "cpu"}}
    extra = {"attack": False, "evidence": {}, "provenance": provenance}
    if held.kind == "train":
        extra["plan"] = {name: value for name, value in plan(10).items() if name != "shards"}
    return jobs.outcome(held, extra=extra, **changes)


def plan(*evaluations: int, **changes: Any) -> Any:
    found = jobs.plan(*evaluations, **changes)
    sizes = [{**one, "available": one["n"]} for one in found["evaluations"]]
    return {**found, "untrained": False, "weights_sha256": "w", "sources": {}, "evaluations": sizes}


def claimed(ledger: WorkLedger, **changes: Any) -> Claim:
    found = ledger.claim(asked(**changes))
    assert found is not None
    return found


def state_of(store: Store, held: Claim) -> tuple[str, int, int]:
    (row,) = (shard for shard in store.shards.of(held.job_id) if shard.id == held.shard_id)
    return str(row.state), row.failures, row.losses


def test_a_shard_from_claim_to_outcome(store: Store, ledger: WorkLedger) -> None:
    job_id = planned(store, 2)
    held = claimed(ledger)
    assert (held.job_id, held.kind, held.fence, held.start, held.stop) == (job_id, "evaluate", 1, 0, 10)
    assert held.spec["evaluations"] == [{"name": "clean"}]
    assert ledger.renew(held, 60.0) == "run"
    ledger.progress(held, 4, 10, "half", {})
    assert store.jobs.get(job_id).message == "half"
    row = outcome(held)
    assert ledger.finish(held, row) == Finished(evaluation_done=False, job_done=False)
    assert ledger.finish(held, row) == Finished(evaluation_done=False, job_done=False), "a lost answer"
    assert ledger.renew(held, 60.0) == "lost"
    last = claimed(ledger)
    assert ledger.finish(last, outcome(last)) == Finished(evaluation_done=True, job_done=True)
    assert ledger.claim(asked()) is None
    kept = [r.columns for r in store.results.outcomes(job_id, 0)]
    assert kept == [outcome(held).columns, outcome(last).columns]


def test_numbers_that_are_none_are_kept(store: Store, ledger: WorkLedger) -> None:
    job_id = planned(store, 1)
    held = claimed(ledger)
    columns: Any = {"id": ["a", "b"], "loss": [float("inf"), float("-inf")]}
    assert ledger.finish(held, replace(outcome(held), n=2, columns=columns)) is not None
    (row,) = store.results.outcomes(job_id, 0)
    assert row.columns == columns


def test_an_older_fence_changes_nothing(store: Store, ledger: WorkLedger) -> None:
    job_id = planned(store, 1)
    old = claimed(ledger)
    ledger.expire_own(ME)
    assert state_of(store, old) == ("queued", 0, 1)
    assert ledger.adrift(old)
    new = claimed(ledger)
    assert new.fence == old.fence + 1
    assert not ledger.adrift(old)
    assert ledger.renew(old, 60.0) == "lost"
    ledger.release(old)
    ledger.canceled(old)
    ledger.progress(old, 9, 10, "forged", {})
    ledger.fail(old, "boom", "no", retry=False, fingerprint=None)
    assert ledger.finish(old, outcome(old)) is None
    assert state_of(store, new) == ("running", 0, 1)
    assert store.jobs.get(job_id).message != "forged"


def test_an_outcome_after_its_lease_is_taken_where_none_has_claimed_since(
    store: Store, ledger: WorkLedger
) -> None:
    planned(store, 1)
    held = claimed(ledger)
    ledger.expire_own(ME)
    assert ledger.finish(held, outcome(held)) == Finished(evaluation_done=True, job_done=True)


def test_what_is_given_back_is_uncounted_and_what_fails_is_counted(store: Store, ledger: WorkLedger) -> None:
    job_id = planned(store, 1)
    held = claimed(ledger)
    ledger.release(held, "a worker gave it back")
    assert state_of(store, held) == ("queued", 0, 0)
    assert store.jobs.get(job_id).message == "a worker gave it back"
    ledger.device_fault(claimed(ledger), "its device failed")
    (row,) = (shard for shard in store.shards.of(job_id) if shard.id == held.shard_id)
    assert row.device_faults == 1
    again = claimed(ledger)
    assert ledger.fail(again, "boom", "no", retry=True, fingerprint=None) == "running"
    assert state_of(store, held) == ("queued", 1, 0)
    last = claimed(ledger)
    assert ledger.fail(last, "boom", "no", retry=False, fingerprint=None) == "failed"
    assert store.jobs.get(job_id).error == {"type": "boom", "message": "no"}


def test_a_canceled_job_is_told_and_ended(store: Store, ledger: WorkLedger) -> None:
    job_id = planned(store, 1)
    held = claimed(ledger)
    assert not ledger.is_stopped(job_id)
    store.jobs.cancel(job_id)
    assert ledger.renew(held, 60.0) == "cancel"
    assert ledger.is_stopped(job_id)
    ledger.canceled(held)
    assert store.jobs.get(job_id).state == "canceled"


@pytest.mark.costly
def test_a_deleted_job_is_stopped_and_not_found(store: Store, ledger: WorkLedger) -> None:
    job_id = planned(store, 1)
    held = claimed(ledger)
    store.jobs.cancel(job_id)
    ledger.canceled(held)
    store.jobs.delete(job_id)
    assert ledger.is_stopped(job_id)
    with pytest.raises(NotFound):
        ledger.fail(held, "boom", "no", retry=True, fingerprint=None)


def test_a_plan_is_written_once(store: Store, ledger: WorkLedger) -> None:
    job_id = add(store, evaluate_spec())
    held = claimed(ledger)
    assert held.kind == "plan"
    assert ledger.being_planned(["cpu"])
    written: Any = plan(3, planned_by=identity()["digest"])
    assert ledger.finish_plan(held, written, [], 0.0)
    assert not ledger.finish_plan(held, written, [], 0.0)
    assert len([shard for shard in store.shards.of(job_id) if shard.kind == "evaluate"]) == 3
    assert claimed(ledger).plan is not None


def test_a_training_is_limited_and_saved(store: Store, ledger: WorkLedger) -> None:
    job_id = add(store, train_spec())
    held = claimed(ledger)
    ledger.fail(held, "boom", "no", retry=True, fingerprint=None)
    held = claimed(ledger)
    ledger.limit(held, 100.0)
    assert store.jobs.get(job_id).deadline is not None
    ledger.checkpoint(held, 7)
    assert state_of(store, held)[1:] == (0, 0), "a later step voids failures"
    ledger.log(held, "it goes on")
    assert store.jobs.get(job_id).message == "it goes on"


def test_sources_are_those_of_the_claims_job(store: Store, ledger: WorkLedger) -> None:
    source = add(store, train_spec(name="source"))
    training = claimed(ledger)
    assert ledger.finish(training, outcome(training)) is not None
    assert store.jobs.succeed(source, {})  # type: ignore[typeddict-item]
    job_id = add(store, evaluate_spec(weights_from=source))
    held = claimed(ledger)
    assert held.job_id == job_id
    assert ledger.spec_of(held, source) == store.jobs.get(source).spec
    assert dict(ledger.needed_checkpoints(held)) == {}
    store.artifacts.add(job_id, "a.csv", "/x/a.csv", 1, "0" * 64, "text/csv")
    assert ledger.artifact_names(held) == {"a.csv"}


def test_a_worker_is_seen_and_put_out_of_service(store: Store, ledger: WorkLedger) -> None:
    ledger.beat(heartbeat())
    assert ledger.admits(identity()["digest"])
    (worker,) = store.online_workers()
    assert worker.device_classes == ("cpu",)
    assert ledger.online("cpu", devices=1, besides="another") == 1
    assert ledger.unmet("cpu", "d1")
    assert not ledger.unmet("cpu", "d2")
    assert ledger.cordon("host:0") is None
    (listed,) = store.cordons.workers()
    store.cordons.set(listed.name, drain=True, by_whom="me")
    cordon = ledger.cordon("host:0")
    assert cordon is not None
    assert cordon.drain
    ledger.gone(ME)
    assert store.online_workers() == ()


def test_lanes_and_counters(store: Store, ledger: WorkLedger) -> None:
    add(store, evaluate_spec())
    held = claimed(ledger)
    written: Any = plan(1)
    assert ledger.finish_plan(held, written, [{"folders": ["imagenet"]}], 0.0)
    assert ledger.cordon("host:0") is None, "supervisors ask for it first"
    (lane,) = ledger.lanes()
    assert lane.stated == {"folders": ["imagenet"]}
    assert ledger.claim(asked()) is None, "it does not meet the requirement"
    assert claimed(ledger, lanes=(lane.lane,)).requirements == lane.lane.requirements
    ledger.add({("assay_evaluator_starts_total", ()): 2.0})
    ledger.add({("assay_evaluator_starts_total", ()): 1.0})
    assert store.overview().counters["assay_evaluator_starts_total", ()] == 3.0


@pytest.mark.parametrize("kind", ["direct", "gateway"])
def test_a_publication_is_heard_of_and_ends_a_wait(store: Store, tmp_path: Path, kind: str) -> None:
    published = DataStore(tmp_path / "published")
    (tmp_path / "data" / "birds").mkdir(parents=True)
    (tmp_path / "data" / "birds" / "1.png").touch()

    def publish_birds() -> None:
        publish(tmp_path / "data", "birds", published, state=tmp_path / "hashes")

    if kind == "direct":
        direct = DirectLedger(store, settings(tmp_path / "state", data_store=published.root))
        assert direct.published() == ""
        publish_birds()
        assert direct.published() == published.version
        return
    with (
        serving(store, tmp_path / "service", data_store=published.root) as server,
        ledger_of(node_settings(tmp_path / "n", server.url, worker_key(store)), wait_seconds=50.0) as ledger,
        ThreadPoolExecutor(1) as pool,
    ):
        assert ledger.admits(identity()["digest"])
        waits = pool.submit(ledger.claim, asked())
        with pytest.raises(TimeoutError):
            waits.result(2.0)
        publish_birds()
        assert waits.result(30.0) is None, "its folders are to be judged again"
        assert ledger.published() == published.version != ""


def test_the_end_of_a_shard_is_told(store: Store, ledger: WorkLedger) -> None:
    job_id = planned(store, 1)
    held = claimed(ledger)
    assert ledger.finish(held, outcome(held)) is not None
    assert [entry["state"] for entry in told(store, job_id, "state")][-1] == "running"
