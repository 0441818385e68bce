"""Data of workers: hashed once, compared with the plan before a shard is measured, and named where wrong."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from assay.service.catalog.catalog import load
from assay.service.store.store import Store
from assay.service.submission.validate import validate
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.evaluator_process import EvaluatorProcess
from assay.workers.supervision.supervisor import Supervisor
from tests.support.jobs import add
from tests.support.workers import ended, settings, wait_for

MODEL = {"name": "symvit", "params": {"image_size": 8, "patch_size": 4, "depth": 1, "width": 16, "heads": 2}}
FOLDER = {"name": "image_folder", "params": {"folder": "pictures"}}
CLASSES = ("first", "second")


def write(root: Path, shift: int = 0) -> None:
    """Eight images of two classes; shifted, each has the label of the other class."""
    for number in range(8):
        folder = root / "pictures" / CLASSES[(number + shift) % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (number * 30, 255 - number * 30, 90)).save(folder / f"{number}.png")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests to evaluators."""
    found: list[Any] = []
    send = EvaluatorProcess.send

    def sent(process: EvaluatorProcess, request: Any) -> None:
        found.append(request)
        send(process, request)

    monkeypatch.setattr(EvaluatorProcess, "send", sent)
    return found


def worker(tmp_path: Path, root: Path | None, **changes: Any) -> WorkerSettings:
    command = f"{sys.executable} -m assay.workers.evaluator"
    return settings(tmp_path / "state", evaluator_command=command, data_root=root, **changes)


@contextmanager
def running(store: Store, *workers: WorkerSettings) -> Iterator[list[Supervisor]]:
    supervisors = [
        Supervisor(DirectLedger(store, chosen), chosen, device_classes=("cpu",), number=n)
        for n, chosen in enumerate(workers)
    ]
    for supervisor in supervisors:
        supervisor.start()
    try:
        yield supervisors
    finally:
        for supervisor in supervisors:
            supervisor.stop()
        for supervisor in supervisors:
            supervisor.join(120)


def submitted(store: Store, evaluations: int = 1) -> str:
    body = {
        "kind": "evaluate",
        "model": MODEL,
        "data": FOLDER,
        "evaluations": [{"name": "clean"}, {"name": "uniform_noise"}][:evaluations],
        "execution": {"batch_size": 2},
    }
    return add(store, validate(load(), body).spec)


@pytest.mark.costly
def test_a_data_set_is_hashed_once_and_again_when_a_file_has_changed(
    store: Store, tmp_path: Path, asked: list[Any]
) -> None:
    root = tmp_path / "data"
    write(root)
    with running(store, worker(tmp_path, root)):
        first = submitted(store, 2)
        assert ended(store, first).state == "succeeded"
        assert ended(store, submitted(store)).state == "succeeded"
        assert [one["kind"] for one in asked].count("hash") == 1
        assert {len(one["data_sha256"]) for one in asked if one["kind"] in ("plan", "evaluate")} == {1}
        for file in (root / "pictures").rglob("*.png"):
            Image.new("RGB", (8, 8), (1, 2, 3)).save(file)
        changed = submitted(store)
        assert ended(store, changed).state == "succeeded"
        assert [one["kind"] for one in asked].count("hash") == 2
    before, after = (store.jobs.get(job_id).provenance["data_sha256"] for job_id in (first, changed))
    assert before != after
    asked.clear()
    with running(store, worker(tmp_path, root)):  # a new process would read the file too
        assert ended(store, submitted(store)).state == "succeeded"
    assert "hash" not in [one["kind"] for one in asked]


@pytest.mark.costly
def test_a_worker_whose_labels_are_shifted_measures_nothing_until_they_are_mended(
    store: Store, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    write(right)
    write(wrong, shift=1)
    job_id = submitted(store)
    with running(store, worker(tmp_path, right, shard_seconds=1e-6)):
        wait_for(lambda: store.jobs.get(job_id).plan)
    done = [row.state for row in store.shards.of(job_id) if row.kind == "evaluate"].count("done")
    label, planned = next(iter(store.jobs.get(job_id).plan["data_sha256"].items()))
    with running(store, worker(tmp_path, wrong)):
        said = wait_for(store.workers.other_data)
        assert len(said) == 1
        assert said[0].startswith(f"the data set {label} has the content ")
        assert said[0].endswith(f" on this worker, {planned} in the plan")
        wait_for(lambda: said[0] in store.jobs.get(job_id).message)
        found = store.workers.blocked(job_id, "cpu", 1, "")
        name = store.cordons.workers()[0].name
        assert (found.reasons, found.entirely) == ([f"{name}: {said[0]}"], True)
        states = [row.state for row in store.shards.of(job_id) if row.kind == "evaluate"]
        assert (states.count("done"), states.count("running")) == (done, 0)
        rows = [(row.failures, row.losses) for row in store.shards.of(job_id)]
        assert {*rows} == {(0, 0)}, "nothing is counted against the job"
        shutil.rmtree(wrong / "pictures")
        shutil.copytree(right / "pictures", wrong / "pictures")
        assert ended(store, job_id).state == "succeeded"
        wait_for(lambda: not store.workers.other_data())


@pytest.mark.costly
def test_planned_again_a_job_is_measured_by_the_worker_that_gave_it_back(
    store: Store, tmp_path: Path
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    write(right)
    write(wrong, shift=1)
    job_id = submitted(store)
    with running(store, worker(tmp_path, right, shard_seconds=1e-6)):
        wait_for(lambda: store.jobs.get(job_id).plan)
    planned = store.jobs.get(job_id).plan["data_sha256"]
    with running(store, worker(tmp_path, wrong)):
        wait_for(store.workers.other_data)
        wait_for(lambda: store.workers.blocked(job_id, "cpu", 1, "").entirely)
        store.jobs.replan(job_id)
        assert ended(store, job_id).state == "succeeded"
        assert store.jobs.get(job_id).provenance["data_sha256"] != planned
        wait_for(lambda: not store.workers.other_data())


@pytest.mark.slow
def test_workers_that_disagree_on_a_data_set_are_a_caution_on_its_jobs(store: Store, tmp_path: Path) -> None:
    """Each worker has measured the set alone before; one has its classes swapped."""
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    write(right)
    write(wrong, shift=1)
    chosen = (worker(tmp_path, right), worker(tmp_path, wrong))

    def codes(job_id: str) -> list[list[str]]:
        assert ended(store, job_id).state == "succeeded"
        return [[one["code"] for one in row["warnings"]] for row in store.results.of(job_id).values()]

    with running(store, *chosen) as supervisors:
        wait_for(lambda: store.workers.online("cpu") == 2)
        hashes = {}
        for mine, other in (supervisors, supervisors[::-1]):
            store.cordons.set(other.known_as, drain=False, by_whom="ops")
            alone = submitted(store)
            assert "data_disagreement" not in codes(alone)[0]
            (hashes[mine.known_as],) = store.jobs.get(alone).plan["data_sha256"].values()
            wait_for(lambda: sum("data" in one.gauges for one in store.cordons.workers()) == len(hashes))
            store.cordons.lift(other.known_as)
        assert len({*hashes.values()}) == 2
        (by_hash,) = store.workers.disagreements().values()
        assert by_hash == {sha256: [name] for name, sha256 in hashes.items()}
        job_id = submitted(store, 2)
        assert ["data_disagreement" in row for row in codes(job_id)] == [True, True]
    ((label, used),) = store.jobs.get(job_id).provenance["data_sha256"].items()
    (told,) = [one for one in store.results.of(job_id)[1]["warnings"] if one["code"] == "data_disagreement"]
    assert told["severity"] == "caution"
    assert told["evidence"] == {"data": label, "sha256": used, "workers": by_hash}
    for name, sha256 in hashes.items():
        assert (f"{sha256[:12]} on {name}" in told["message"]) == (sha256 != used)
    assert f"this job used the content {used[:12]}" in told["message"]


@pytest.mark.costly
def test_a_job_goes_to_the_worker_that_has_its_folder(store: Store, tmp_path: Path, asked: list[Any]) -> None:
    root, bare = tmp_path / "data", tmp_path / "bare"
    write(root)
    bare.mkdir()
    with running(store, worker(tmp_path, bare), worker(tmp_path, root)) as (_, able):
        wait_for(lambda: store.workers.online("cpu") == 2)
        for job_id in [submitted(store) for _ in range(3)]:
            assert ended(store, job_id).state == "succeeded"
        listed = {row.worker: row.gauges for row in store.cordons.workers()}
        assert [*listed[able.worker_id]["data"]] == [*store.jobs.get(job_id).plan["data_sha256"]]
        assert {worker for worker, gauges in listed.items() if "data" in gauges} == {able.worker_id}
    assert "error" not in {one["kind"] for one in asked}


@pytest.mark.costly
def test_without_any_worker_that_has_it_the_job_fails_by_name(store: Store, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    with running(store, worker(tmp_path, bare)):
        job = ended(store, submitted(store))
    assert job.state == "failed"
    assert job.error["type"] == "data_missing"
    assert "pictures" in job.error["message"]
