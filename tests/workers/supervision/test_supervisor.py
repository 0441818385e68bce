"""Supervisors on real stores and real processes; only the evaluator is a fake."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.fleet import traces
from assay.service.contract.fleet.release import own_release
from assay.service.contract.logs import JsonFormatter
from assay.service.store.rows import Claim, Finished
from assay.service.store.store import Store
from assay.workers.identity import CHANGED, identity
from assay.workers.jobs import merge
from assay.workers.settings import WorkerSettings
from assay.workers.supervision import supervisor as supervising_module
from assay.workers.supervision.completion import merge_and_finish
from assay.workers.supervision.inventory import Inventory
from assay.workers.supervision.reaper import Reaper
from assay.workers.supervision.supervisor import Supervisor
from tests.support.jobs import claim, planned
from tests.support.spans import CALLER, CALLERS_TRACE, parents, recorded
from tests.support.workers import (
    away,
    ended,
    losses_and_failures,
    measured,
    running,
    settings,
    submit,
    submit_training,
    supervising,
    unanswered,
    wait_for,
)


def test_plan_shards_merge_succeed(either_store: Store, tmp_path: Path) -> None:
    store = either_store
    job_id = submit(store, "shards=3 noise", evaluations=2)
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert (job.state, job.error) == ("succeeded", None)
    assert job.progress_done == job.progress_total == 30
    assert len(measured(store, job_id)) == 15
    results = store.results.of(job_id)
    assert sorted(results) == [0, 1]
    assert results[0]["metrics"]["top1"]["n"] == 15
    assert {a.name for a in store.artifacts.of(job_id) if not a.name.startswith("plot-")} == {
        "outcomes-000-clean.csv",
        "outcomes-001-clean.csv",
    }
    assert job.provenance is not None
    assert job.provenance["times"]["shards"] == 6
    assert losses_and_failures(store, job_id) == (0, 0)
    assert store.workers.online("cpu") == 0, "it said goodbye"


def test_a_job_is_one_trace_from_its_submission_to_its_results(store: Store, tmp_path: Path) -> None:
    with recorded() as kept:
        with traces.span("caller", CALLER):
            job_id = submit(store, "shards=2")
        with supervising(store, settings(tmp_path)):
            job = ended(store, job_id)
    assert job.trace_id == CALLERS_TRACE
    assert job.provenance is not None
    assert job.provenance["trace_id"] == CALLERS_TRACE
    spans = kept.get_finished_spans()
    assert {f"{span.context.trace_id:032x}" for span in spans} == {CALLERS_TRACE}
    assert parents(spans) == [
        ("caller", None),
        ("submit", "caller"),
        ("claim", "submit"),
        ("plan", "submit"),
        *[("claim", "submit"), ("evaluate", "submit")] * 2,
        ("merge", "evaluate"),
    ]
    facts = [dict(span.attributes or {}) for span in spans if span.name == "evaluate"]
    assert [fact["assay.shard"] for fact in facts] == [f"{job_id}-0-0", f"{job_id}-0-1"]


def test_a_failed_shard_is_a_failed_span(store: Store, tmp_path: Path) -> None:
    with recorded() as kept:
        job_id = submit(store, "evaluate:error=final shards=1")
        with supervising(store, settings(tmp_path)):
            assert ended(store, job_id).state == "failed"
    told = {span.name: span.status.description for span in kept.get_finished_spans()}
    assert told["plan"] is None
    assert told["evaluate"] == store.jobs.get(job_id).error["type"]  # type: ignore[index]


def test_without_a_trace_nothing_is_kept(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=1")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert (job.trace, (job.provenance or {})["trace_id"]) == (None, None)  # type: ignore[typeddict-item]


def unfit(state: Path, error: str = "other_data") -> WorkerSettings:
    """Settings of a worker whose evaluator finds that it is not fit for any job."""
    plain = settings(state).evaluator_command
    return settings(state, evaluator_command=f"env FAKE_EVALUATOR=unfit={error} {plain}")


@pytest.mark.costly
def test_a_worker_whose_program_was_exchanged_takes_no_more_work(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity()
    monkeypatch.setattr("assay.workers.identity.source_sha256", lambda _: "0" * 64)
    job_id = submit(store, "shards=1")
    with supervising(store, unfit(tmp_path, "other_identity")):
        wait_for(lambda: store.workers.unfit() == [f"program: {CHANGED}: restart the worker"])
        assert store.workers.online("cpu") == 0
        assert store.jobs.get(job_id).state == "running"
    assert losses_and_failures(store, job_id) == (0, 0)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("error", "looked"),
    [
        ("other_identity", "its code is as it was when the worker started"),
        ("other_data", "its data have the planned content"),
        ("device_fault", "its devices have passed another self-test"),
    ],
)
def test_a_job_that_says_that_every_worker_is_unfit_fails_alone(
    store: Store, tmp_path: Path, error: str, looked: str
) -> None:
    plain = settings(tmp_path).evaluator_command
    chosen = settings(tmp_path, evaluator_command=f"env FAKE_EVALUATOR=data=d {plain}")
    job_id = submit(store, f"shards=1 unfit={error}")
    with supervising(store, chosen, count=2) as supervisors:
        job = ended(store, job_id)
        assert (job.state, job.error and job.error["type"]) == ("failed", error)
        assert job.error is not None
        assert looked in job.error["message"]
        assert [one._evaluator.health.reason for one in supervisors] == ["", ""]
        assert ended(store, submit(store, "shards=2")).state == "succeeded"
        # A worker that tests its devices again serves nothing meanwhile: the other may have run the job.
        wait_for(lambda: (store.workers.unfit(), store.workers.online("cpu")) == ([], 2))
    assert losses_and_failures(store, job_id) == (0, 2)


@pytest.mark.costly
def test_jobs_of_another_identity_wait(store: Store, tmp_path: Path) -> None:
    job_id = planned(store, 1, planned_by="0123456789abcdef")
    other = submit(store, "shards=1")
    with supervising(store, settings(tmp_path)):
        assert ended(store, other).state == "succeeded"
        assert store.workers.online("cpu", identity=identity()["digest"]) == 1
    assert [shard.state for shard in store.shards.of(job_id) if shard.kind == "evaluate"] == ["queued"]


@pytest.mark.costly
def test_a_worker_with_other_data_leaves_the_job_to_others(store: Store, tmp_path: Path) -> None:
    """Its own evaluator, of no job, reads other data than the plan says."""
    plain = settings(tmp_path).evaluator_command
    words = "'data=another unfit=other_data'"
    other = "the data set digits has the content another on this worker, d in the plan"
    job_id = submit(store, "shards=3")
    with supervising(store, settings(tmp_path, evaluator_command=f"env FAKE_EVALUATOR={words} {plain}")):
        wait_for(lambda: f"gave a shard back: {other}" in store.jobs.get(job_id).message)
        wait_for(lambda: store.workers.other_data() == [other])
        wait_for(lambda: store.workers.online("cpu") == 1)  # it may be fit for other jobs
        assert store.jobs.get(job_id).state == "running"
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"
    assert losses_and_failures(store, job_id) == (0, 0)


def test_data_on_which_workers_disagree_are_a_caution_on_every_row(store: Store, tmp_path: Path) -> None:
    """Also on a row that was merged before a worker had told its hash; and only once."""

    def cautions(job_id: str) -> list[list[str]]:
        rows = store.results.of(job_id).values()
        return [[w["message"] for w in row["warnings"] if w["code"] == "data_disagreement"] for row in rows]

    with supervising(store, settings(tmp_path)):
        store.workers.beat("a", "box", ["cuda"], 1, {"data": {"digits": "d"}}, 1, "box:a")
        job_id = submit(store, "shards=1", evaluations=2)
        assert ended(store, job_id).state == "succeeded"
        assert cautions(job_id) == [[]] * len(store.results.of(job_id))
        store.workers.beat("b", "box", ["cuda"], 1, {"data": {"digits": "another"}}, 1, "box:b")
        for _ in range(2):
            merge.save_job(store, settings(tmp_path).file_store, job_id)
        assert [[text.count("another on box:b") for text in row] for row in cautions(job_id)] == [[1]] * 2
        later = submit(store, "shards=1")
        assert ended(store, later).state == "succeeded"
        assert [len(row) for row in cautions(later)] == [1] * len(cautions(later))


@pytest.mark.costly
def test_training_reports_steps_and_releases_what_waits(store: Store, tmp_path: Path) -> None:
    source = submit_training(store, "steps=10 checkpoint")
    waiting = submit(store, "", weights_from=source)
    assert store.jobs.get(waiting).state == "waiting"
    with supervising(store, settings(tmp_path)):
        assert ended(store, source).state == "succeeded"
        assert ended(store, waiting).state == "succeeded"
    trained = store.jobs.get(source)
    assert (trained.progress_done, trained.progress_total, trained.progress_unit) == (10, 10, "steps")
    assert store.results.of(source)[0]["name"] == "clean"


@pytest.mark.costly
def test_cancel_ends_an_idle_warm_evaluator(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker's shard keeps the job going; the memory of its model here is given back too."""
    claim, left = store.shards.claim, [None, None]  # the plan and one shard of two

    def limited(*arguments: Any, **options: Any) -> Claim | None:
        return claim(*arguments, **options) if left and not left.pop() else None

    monkeypatch.setattr(store.shards, "claim", limited)
    job_id = submit(store, "shards=2")
    with supervising(store, settings(tmp_path)) as (supervisor,):
        wait_for(lambda: len(measured(store, job_id)) == 5)
        theirs = claim("other:k:1:2:0", ["cpu"], lease_seconds=60)
        assert theirs is not None
        pid = supervisor.evaluator_pid
        assert pid is not None
        assert running(pid), "it stays warm between shards"
        assert store.jobs.cancel(job_id).state == "canceling"
        wait_for(lambda: not running(pid))
        store.shards.canceled(theirs)
    assert store.jobs.get(job_id).state == "canceled"


@pytest.mark.costly
def test_an_idle_evaluator_is_ended_in_the_end(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "")
    with supervising(store, settings(tmp_path, idle_seconds=0.2)) as (supervisor,):
        ended(store, job_id)
        wait_for(lambda: supervisor.evaluator_pid is None)


@pytest.mark.costly
def test_an_idle_worker_readies_its_evaluator_while_another_plans(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=2")
    plan = store.shards.claim("other:k:1:2:0", ["cpu"], lease_seconds=60)
    assert plan is not None
    with supervising(store, settings(tmp_path, idle_seconds=0.0)) as (supervisor,):
        wait_for(lambda: supervisor.evaluator_pid is not None)
        first = supervisor.evaluator_pid
        supervisor.ring()
        time.sleep(0.2)
        assert supervisor.evaluator_pid == first, "it is not ended while it may be needed"
        store.jobs.cancel(job_id)
        store.shards.canceled(plan)
        wait_for(lambda: supervisor.evaluator_pid is None)


@pytest.mark.costly
def test_evaluators_start_with_the_worker_where_they_shall(store: Store, tmp_path: Path) -> None:
    with supervising(store, settings(tmp_path, prefetch=True)) as (supervisor,):
        wait_for(lambda: supervisor.evaluator_pid is not None)
    with supervising(store, settings(tmp_path, prefetch=True, idle_seconds=0.5)) as (supervisor,):
        wait_for(lambda: supervisor.evaluator_pid is not None)
        wait_for(lambda: supervisor.evaluator_pid is None)
        supervisor.ring()
        time.sleep(0.2)
        assert supervisor.evaluator_pid is None, "it starts once without work"


@pytest.mark.costly
def test_nothing_is_readied_for_a_plan_on_another_device(store: Store) -> None:
    submit(store, "", device="cuda")
    assert not store.shards.being_planned(["cuda"]), "it is queued"
    assert store.shards.claim("other:k:1:2:0", ["cuda"], lease_seconds=60) is not None
    assert store.shards.being_planned(["cuda"])
    assert not store.shards.being_planned(["cpu"])


@pytest.mark.costly
def test_an_outcome_outlives_its_worker(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured while the database is away, the worker stopped, its lease taken: the next one records it."""
    job_id = submit(store, "shards=1 evaluate:crash=once")
    finish = store.shards.finish
    monkeypatch.setattr(store.shards, "finish", away(10**9, finish))
    with supervising(store, settings(tmp_path)):
        wait_for(lambda: list((tmp_path / "spool").glob("*.json")))
    assert measured(store, job_id) == []
    (row,) = store.shards.running()
    assert store.shards.expire(dead_owners=[row.worker]) == 1
    assert {s.state for s in store.shards.of(job_id)} == {"done", "queued"}
    monkeypatch.setattr(store.shards, "finish", finish)
    monkeypatch.setattr(store.shards, "claim", lambda *a, **o: None)  # nothing is computed again
    monkeypatch.setattr("assay.workers.supervision.outcome_spool.ABANDONED_SECONDS", 0.0)
    with supervising(store, settings(tmp_path), count=2):
        assert ended(store, job_id).state == "succeeded"
    assert len(measured(store, job_id)) == 5
    assert list(store.results.of(job_id)) == [0]


@pytest.mark.costly
def test_two_supervisors_share_a_job(either_store: Store, tmp_path: Path) -> None:
    store = either_store
    both_work = tmp_path / "both_work"
    alone = submit(store, "shards=6", priority=9)
    shared = submit(store, f"shards=6 evaluate:until={both_work}")
    with supervising(store, settings(tmp_path)):
        ended(store, alone)
    with supervising(store, settings(tmp_path), count=2):
        wait_for(lambda: len({shard.owner for shard in store.shards.running()}) == 2)
        both_work.touch()
        assert ended(store, shared).state == "succeeded"
    assert losses_and_failures(store, shared) == (0, 0)
    same = [[row.columns for row in store.results.outcomes(job_id, 0)] for job_id in (alone, shared)]
    assert same[0] == same[1], "the number of workers changes nothing"


@pytest.mark.costly
def test_who_ends_the_job_merges_what_others_left_unmerged(store: Store, tmp_path: Path) -> None:
    """A worker may be killed between the last shard of an evaluation and its merge."""
    job_id = submit(store, "shards=1", evaluations=2)
    chosen = settings(tmp_path)
    with supervising(store, chosen):
        ended(store, job_id)
    claims: list[Claim] = []
    second = submit(store, "shards=1", evaluations=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "assay.workers.supervision.direct_ledger.merge_and_finish",
            lambda s, c, claim, finished: claims.append(claim),
        )
        with supervising(store, chosen):
            wait_for(lambda: len(claims) == 2)
    assert store.results.of(second) == {}
    merge_and_finish(store, chosen, claims[-1], Finished(evaluation_done=True, job_done=True))
    assert sorted(store.results.of(second)) == [0, 1]
    assert store.jobs.get(second).state == "succeeded"


@pytest.mark.costly
def test_a_lost_merge_of_a_job_that_then_fails_is_made_up_for_at_a_retry(
    either_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Measured outcomes are kept, not measured again."""
    store, chosen = either_store, settings(tmp_path)
    job_id = submit(store, "shards=1", evaluations=2)
    with monkeypatch.context() as patch:
        patch.setattr("assay.workers.supervision.direct_ledger.merge_and_finish", lambda *a: None)
        claim, allowed = store.shards.claim, [True, True]  # the plan and the first evaluation
        patch.setattr(
            store.shards, "claim", lambda *a, **o: claim(*a, **o) if allowed and allowed.pop() else None
        )
        with supervising(store, chosen):
            wait_for(lambda: len(measured(store, job_id)) == 5)
    for _ in range(3):
        held = store.shards.claim("unlucky", ["cpu"], lease_seconds=60)
        assert held is not None
        store.shards.fail(held, "boom", "no", retry=True)
    assert store.jobs.get(job_id).state == "failed"
    assert store.results.of(job_id) == {}
    before = store.results.outcomes(job_id, 0)
    assert len(before) == 1
    store.jobs.retry(job_id)
    with supervising(store, chosen):
        assert ended(store, job_id).state == "succeeded"
    assert sorted(store.results.of(job_id)) == [0, 1]
    assert store.results.outcomes(job_id, 0) == before
    assert [s.fence for s in store.shards.of(job_id) if s.kind == "evaluate"] == [1, 4]


@pytest.mark.costly
def test_beats_go_on_during_a_long_shard(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervising_module, "BEAT_SECONDS", 0.05)
    beats: list[str] = []
    beat = store.workers.beat
    monkeypatch.setattr(
        store.workers, "beat", lambda *a: (beats.append(threading.current_thread().name), beat(*a))[1]
    )
    job_id = submit(store, "shards=1 evaluate:hang")
    with supervising(store, settings(tmp_path)):
        wait_for(lambda: store.jobs.get(job_id).state == "running" and store.shards.running())
        wait_for(lambda: sum(name.startswith("renew-") for name in beats) >= 3)
        assert store.workers.online("cpu", within_seconds=30) == 1
        assert store.workers.online("cuda", within_seconds=30) == 0


@pytest.mark.costly
def test_unexpected_errors_do_not_end_a_supervisor(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, raised = store.shards.claim, []

    def broken(*arguments: Any, **options: Any) -> Claim | None:
        if not raised:
            raised.append(True)
            raise RuntimeError("a defect")
        return claim(*arguments, **options)

    monkeypatch.setattr(store.shards, "claim", broken)
    job_id = submit(store, "")
    with supervising(store, settings(tmp_path)):
        assert ended(store, job_id).state == "succeeded"


@pytest.mark.costly
def test_what_cannot_be_saved_fails_the_job(store: Store, tmp_path: Path) -> None:
    job_id = submit(store, "shards=1")
    (tmp_path / "artifacts").write_text("in the way")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert job.error is not None
    assert job.error["type"] == "save_failed"
    assert len(measured(store, job_id)) == 5, "what was measured stays readable"


@pytest.mark.costly
def test_the_reaper_and_a_supervisor_together_lose_no_job(store: Store, tmp_path: Path) -> None:
    """They may merge the same job at the same time."""
    chosen = settings(tmp_path)
    reaper = Reaper(store, chosen.model_copy(update={"sweep_seconds": 0.001}), device_classes=("cpu",))
    reaper.start()
    jobs = [submit(store, "shards=1", evaluations=3) for _ in range(4)]
    with supervising(store, chosen, count=2):
        assert {ended(store, job_id).state for job_id in jobs} == {"succeeded"}
    reaper.stop()
    reaper.join(120)
    assert all(len(store.results.of(job_id)) == 3 for job_id in jobs)


@pytest.mark.costly
def test_a_claim_whose_answer_was_lost_is_claimed_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is alive but unaware of its shard: its lease must not be waited for.

    Leases of others are the leading reaper's, who knows whether the database's clock has jumped.
    """
    others = planned(store, 1)
    claim(store, "elsewhere:kernel:1:2:0", lease_seconds=-3600)
    job_id = submit(store, "shards=2")
    monkeypatch.setattr(store.shards, "claim", unanswered(1, store.shards.claim))
    with supervising(store, settings(tmp_path, lease_seconds=3600)):
        assert ended(store, job_id).state == "succeeded"
    assert losses_and_failures(store, job_id) == (1, 0)
    assert losses_and_failures(store, others) == (0, 0)


@pytest.mark.costly
def test_ringing_wakes_a_sleeping_supervisor(store: Store, tmp_path: Path) -> None:
    with supervising(store, settings(tmp_path, poll_seconds=300)) as (supervisor,):
        assert isinstance(supervisor, Supervisor)
        time.sleep(0.2)  # it looks once and then sleeps for five minutes
        job_id = submit(store, "")
        supervisor.ring()
        assert ended(store, job_id).state == "succeeded"


@pytest.mark.costly
def test_the_memory_of_the_gpu_is_told_while_it_is_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.workers.supervision.supervisor.BEAT_SECONDS", 0)
    seen = tmp_path / "seen"
    job_id = submit(store, f"gpu evaluate:until={seen}")
    with supervising(store, settings(tmp_path, idle_seconds=0.5)):
        gpu = wait_for(lambda: [row.gauges["gpu"] for row in store.overview().workers if "gpu" in row.gauges])
        assert gpu == [{"name": "", "total": 3, "used": 2, "reserved": 1}]
        seen.touch()
        assert ended(store, job_id).state == "succeeded"
        catalog = load().digest
        wait_for(lambda: all("gpu" not in row.gauges for row in store.overview().workers))
        assert store.workers.catalogs() == [catalog]


@pytest.mark.costly
def test_every_line_of_a_shard_says_so_and_what_the_evaluator_prints_too(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    handler = Collect()
    handler.setFormatter(JsonFormatter())
    caplog.set_level(logging.INFO)
    logging.getLogger().addHandler(handler)
    try:
        job_id = submit(store, "noise shards=1 error=once")
        with supervising(store, settings(tmp_path)):
            assert ended(store, job_id).state == "succeeded"
    finally:
        logging.getLogger().removeHandler(handler)
    found = [json.loads(line) for line in lines]
    shards = {shard.id for shard in store.shards.of(job_id)}
    for logger in (
        "assay.workers.supervision.supervisor",
        "assay.workers.supervision.shard_end",
        "assay.workers.supervision.evaluator_output",
    ):
        of_logger = [line for line in found if line["logger"] == logger]
        assert {line["shard"] for line in of_logger} == shards, logger
        assert {line["job"] for line in of_logger} == {job_id}


def test_a_worker_of_other_code_takes_no_shard_until_it_is_allowed(
    either_store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, mine = either_store, identity()["digest"]
    store.identities.declare({"version": "1.0", "source_sha256": "ab" * 32})
    job_id = submit(store, "shards=2")
    with supervising(store, settings(tmp_path, prefetch=True)) as (supervisor,):
        wait_for(lambda: mine in store.workers.refused())
        wait_for(
            lambda: (
                f"takes no work until an administrator allows it: assay workers allow {mine}" in caplog.text
            )
        )
        supervisor.ring()
        assert supervisor.evaluator_pid is None, "nor does it load anything for it"
        assert {shard.fence for shard in store.shards.of(job_id)} == {0}
        store.identities.rule(mine, "allowed", "ops")
        assert ended(store, job_id).state == "succeeded"
        store.identities.rule(mine, "withdrawn", "ops")
        later = submit(store, "")
        wait_for(lambda: caplog.text.count("takes no work until") == 2)
        assert store.jobs.get(later).state == "queued"
        store.identities.declare(own_release())
        store.identities.rule(mine, "allowed", "ops")
        assert ended(store, later).state == "succeeded"


@pytest.mark.costly
def test_a_worker_of_the_services_own_release_needs_no_one(either_store: Store, tmp_path: Path) -> None:
    either_store.identities.declare(own_release())
    job_id = submit(either_store, "shards=2")
    with supervising(either_store, settings(tmp_path)):
        assert ended(either_store, job_id).state == "succeeded"
    assert either_store.workers.refused() == {}


def test_a_shard_goes_back_if_its_data_have_gone(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, released = [["birds"], ["birds"]], list[str]()

    @contextmanager
    def using(*_: Any) -> Iterator[list[str]]:
        yield gone.pop() if gone else []

    release = store.shards.release
    monkeypatch.setattr(
        store.shards, "release", lambda claim, said="": (released.append(said), release(claim, said))
    )
    monkeypatch.setattr(Inventory, "using", using)
    job_id = submit(store, "shards=1")
    with supervising(store, settings(tmp_path)):
        job = ended(store, job_id)
    assert (job.state, job.error) == ("succeeded", None)
    assert released == ["a worker no longer has birds"] * 2
    assert losses_and_failures(store, job_id) == (0, 0)
