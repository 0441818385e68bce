"""Checks of uploaded weights by supervisors; only the evaluator is a fake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.weights.stored_checkpoints import CheckpointRow
from assay.service.store.fleet.fair_queue import CHECKS
from assay.service.store.store import Store
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.supervisor import Supervisor
from tests.support.jobs import evaluate_spec
from tests.support.workers import (
    CLEAN,
    away,
    ended,
    losses_and_failures,
    settings,
    submit,
    supervising,
    unanswered,
    wait_for,
)


def upload(store: Store, folder: Path, name: str = "ours", *, there: bool = True) -> CheckpointRow:
    def place(job_id: str) -> None:
        path = folder / "artifacts" / job_id / "weights.safetensors"
        path.parent.mkdir(parents=True)
        if there:
            path.write_bytes(b"weights")

    model = {"name": "symvit", "params": {}}
    return store.checkpoints.add(name, model=model, sha256="a" * 64, size=7, tenant=None, place=place)[0]


def using(store: Store, name: str = "ours") -> str:
    spec = evaluate_spec() | {"evaluations": [CLEAN]}
    spec["model"]["weights"] = {"checkpoint": name, "sha256": "a" * 64}
    return store.jobs.add(spec, body_sha256="sha")[0].id


def decided(store: Store, name: str = "ours") -> CheckpointRow:
    row: CheckpointRow = wait_for(
        lambda: (found := store.checkpoints.get(name, tenant=None)).state != "checking" and found
    )
    return row


def test_a_check_releases_the_jobs_that_wait_for_it(either_store: Store, tmp_path: Path) -> None:
    store = either_store
    upload(store, tmp_path)
    waiting = using(store)
    assert store.jobs.get(waiting).state == "waiting"
    with supervising(store, settings(tmp_path)):
        assert ended(store, waiting).state == "succeeded"
    assert decided(store).verdict == {"layout": "assay", "classes": 10, "channels": 1, "missing": []}


def test_a_rejection_fails_them(store: Store, tmp_path: Path) -> None:
    upload(store, tmp_path, "reject")
    waiting = using(store, "reject")
    with supervising(store, settings(tmp_path)):
        job = ended(store, waiting)
    assert job.error is not None
    assert job.error["type"] == "dependency_failed"
    assert job.error["message"].startswith(
        "checkpoint reject, whose weights this job needs, was rejected: head.bias"
    )
    assert decided(store, "reject").reason == "head.bias is missing"


@pytest.mark.costly
@pytest.mark.parametrize("word", ["crash=once", "error=once", "kill=once"])
def test_an_accident_is_not_the_files_fault(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setenv("FAKE_EVALUATOR", word)
    monkeypatch.setenv("ASSAY_EVALUATOR_ENVIRONMENT", "FAKE_EVALUATOR")
    upload(store, tmp_path)
    with supervising(store, settings(tmp_path)):
        assert decided(store).state == "ready"


@pytest.mark.parametrize("trouble", [away, unanswered])
def test_a_verdict_survives_a_database_that_is_away(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: Any
) -> None:
    monkeypatch.setattr(store.checkpoints, "checked", trouble(2, store.checkpoints.checked))
    upload(store, tmp_path)
    with supervising(store, settings(tmp_path)):
        assert decided(store).state == "ready"


def test_a_file_that_is_gone_is_said(store: Store, tmp_path: Path) -> None:
    upload(store, tmp_path, there=False)
    with supervising(store, settings(tmp_path)):
        assert decided(store).reason == "the file is not there"


def test_a_check_that_takes_too_long_rejects_the_file_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_EVALUATOR", "check:hang")
    monkeypatch.setenv("ASSAY_EVALUATOR_ENVIRONMENT", "FAKE_EVALUATOR")
    upload(store, tmp_path)
    with supervising(store, settings(tmp_path, max_check_seconds=0.3)) as (supervisor,):
        row = decided(store)
        assert row.state == "rejected"
        assert row.reason == "its check took more than 0.3 s (ASSAY_MAX_CHECK_SECONDS), and was ended"
        assert row.verdict is not None
        assert row.verdict["other"] == [row.reason]
        assert losses_and_failures(store, row.job_id) == (0, 0)
        wait_for(lambda: supervisor.evaluator_pid is None)


@pytest.fixture
def both(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Supervisor]]:
    """A worker for jobs, and one for checks."""
    monkeypatch.setenv("ASSAY_EVALUATOR_ENVIRONMENT", "FAKE_EVALUATOR")
    found = [
        Supervisor(
            DirectLedger(store, settings(tmp_path)), settings(tmp_path), device_classes=(one,), number=number
        )
        for number, one in enumerate(("cpu", CHECKS))
    ]
    yield found
    for supervisor in found:
        supervisor.stop()
    for supervisor in found:
        if supervisor.is_alive():
            supervisor.join(120)


def test_a_check_does_not_wait_for_work(store: Store, both: list[Supervisor], tmp_path: Path) -> None:
    work = submit(store, "evaluate:hang")
    for supervisor in both:
        supervisor.start()
    wait_for(lambda: store.jobs.get(work).state == "running")
    upload(store, tmp_path)
    assert decided(store).state == "ready"
    assert store.jobs.get(work).state == "running"
    assert store.workers.online("auto") == 1, "the one for checks is no worker for jobs"


@pytest.mark.costly
def test_work_does_not_wait_for_a_check(
    store: Store, both: list[Supervisor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_EVALUATOR", "check:hang")
    for number in range(3):
        upload(store, tmp_path, f"slow-{number}")
    for supervisor in both:
        supervisor.start()
    assert ended(store, submit(store, "quick")).state == "succeeded"
    assert store.checkpoints.get("slow-2", tenant=None).state == "checking"


def test_checks_and_work_have_workers_of_their_own(store: Store, tmp_path: Path) -> None:
    upload(store, tmp_path)
    work = submit(store, "quick")
    assert store.shards.claim("one", [CHECKS], lease_seconds=30).kind == "check"
    assert store.shards.claim("one", [CHECKS], lease_seconds=30) is None
    assert store.shards.claim("two", ["cpu"], lease_seconds=30).job_id == work
