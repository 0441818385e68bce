"""Workers and a service with an object store: each has a folder of its own, and nothing is lost."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.app import create_app
from assay.service.files import s3_files
from assay.service.files.file_store import StoreAway, read_bounded
from assay.service.files.presigned import S3Place
from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.claim_files import StoredFiles
from assay.workers.supervision.direct_ledger import DirectLedger
from assay.workers.supervision.outcome_spool import Spool
from assay.workers.supervision.reaper import Reaper
from assay.workers.supervision.retention import Retention
from tests.service.conftest import BASE_URL, running
from tests.support.jobs import add, claim, evaluate_spec, outcome, planned, succeeded, train_spec
from tests.support.object_stores import Network, new_bucket, settings_of
from tests.support.workers import ended, settings, submit, supervising

CONTENT = b"weights"
SHA256 = hashlib.sha256(CONTENT).hexdigest()
WEIGHTS = "weights.safetensors"


@pytest.fixture
def place(s3_server: str) -> S3Place:
    return new_bucket(s3_server)


@pytest.fixture
def chosen(place: S3Place, tmp_path: Path) -> WorkerSettings:
    return settings(tmp_path / "worker", **settings_of(place))


@pytest.fixture
def network(s3_server: str, monkeypatch: Any) -> Iterator[Network]:
    monkeypatch.setattr(s3_files, "CALL_SECONDS", 1)
    monkeypatch.setattr(s3_files, "RETRIES", 0)
    monkeypatch.setattr(s3_files, "PROBED_SECONDS", 0.0)
    network = Network(s3_server)
    yield network
    network.close()


def local_file(chosen: WorkerSettings, job_id: str, name: str, content: bytes = CONTENT) -> Path:
    path = chosen.folder(job_id) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def named(name: str, content: bytes = CONTENT) -> Any:
    sha256 = hashlib.sha256(content).hexdigest()
    return {"name": name, "path": name, "size": len(content), "sha256": sha256, "media_type": "text/csv"}


@pytest.mark.costly
def test_a_job_ends_with_its_files_in_the_store(
    store: Store, chosen: WorkerSettings, place: S3Place, tmp_path: Path
) -> None:
    with supervising(store, chosen):
        job_id = submit(store, "shards=2")
        job = ended(store, job_id)
    assert (job.state, job.error) == ("succeeded", None)
    rows = store.artifacts.of(job_id)
    assert "outcomes-000-clean.csv" in {row.name for row in rows}
    assert [*chosen.file_store.sizes(job_id)] == sorted(row.name for row in rows)
    assert not [*chosen.folder(job_id).glob("*.csv")]
    service = Settings(state=tmp_path / "service", **settings_of(place))
    with running(create_app(service, store=store)) as transport:
        http = httpx.Client(transport=transport, base_url=BASE_URL)
        url = f"/api/v1/jobs/{job_id}/artifacts/outcomes-000-clean.csv"
        whole = http.get(url)
        (row,) = [row for row in rows if row.name == "outcomes-000-clean.csv"]
        assert hashlib.sha256(whole.content).hexdigest() == row.sha256
        assert whole.headers["etag"] == f'"{row.sha256}"'
        part = http.get(url, headers={"Range": "bytes=3-9"})
        assert (part.status_code, part.content) == (206, whole.content[3:10])
        assert http.get("/readyz").json()["artifacts"] == "writable"
        assert http.get(f"/jobs/{job_id}").status_code == 200
        assert http.delete(f"/api/v1/jobs/{job_id}").status_code == 204
    assert [*chosen.file_store.sizes(job_id)] == []


def test_an_outcome_waits_for_a_store_that_is_away(
    store: Store, place: S3Place, network: Network, tmp_path: Path
) -> None:
    """In the spool, as for a database that is away; then it counts, with its files."""
    chosen = settings(tmp_path, **settings_of(replace(place, endpoint=network.url)))
    job_id = planned(store, 1)
    held, ledger = claim(store), DirectLedger(store, chosen)
    spool = Spool(chosen.state / "spool", ledger, held.worker)
    path = local_file(chosen, job_id, "x.csv")
    row = replace(outcome(held), extra={**outcome(held).extra, "artifacts": [named("x.csv")]})
    for network.mode in ("down", "lying"):
        with pytest.raises(StoreAway):
            spool.record(held, row)
        assert (path.read_bytes(), store.results.outcomes(job_id, 0)) == (CONTENT, [])
        assert len([*(chosen.state / "spool").glob("*.json")]) == 1
    network.mode = "fine"
    ((flushed, _),) = spool.flush()
    assert (flushed.shard_id, len(store.results.outcomes(job_id, 0))) == (held.shard_id, 1)
    assert read_bounded(chosen.file_store, job_id, "x.csv", SHA256, 99) == CONTENT
    assert not path.exists()
    assert [*(chosen.state / "spool").iterdir()] == []


@pytest.mark.costly
def test_a_job_that_cannot_be_merged_now_is_merged_later(
    store: Store, place: S3Place, network: Network, tmp_path: Path
) -> None:
    chosen = settings(tmp_path, **settings_of(replace(place, endpoint=network.url)), sweep_seconds=0.05)
    network.mode = "down"
    with supervising(store, chosen):
        job_id = submit(store, "shards=1")
        while not network.calls:
            assert store.jobs.get(job_id).state not in ("failed", "succeeded")
        network.mode = "fine"

        reaper = Reaper(store, chosen, device_classes=("cpu",))
        while store.jobs.get(job_id).state != "succeeded":
            assert store.jobs.get(job_id).error is None
            reaper.sweep()
    assert "outcomes-000-clean.csv" in [*chosen.file_store.sizes(job_id)]


def test_a_file_that_is_lost_keeps_back_no_measurement(
    store: Store, chosen: WorkerSettings, caplog: Any
) -> None:
    job_id = planned(store, 1)
    held, ledger = claim(store), DirectLedger(store, chosen)
    row = replace(outcome(held), extra={**outcome(held).extra, "artifacts": [named("x.csv")]})
    assert ledger.finish(held, row) is not None
    assert len(store.results.outcomes(job_id, 0)) == 1
    assert "x.csv is lost" in caplog.text


def test_a_file_that_its_job_exchanges_is_not_sent(
    store: Store, chosen: WorkerSettings, tmp_path: Path, caplog: Any
) -> None:
    """The job runs a stranger's code: a link or another content leaves nothing, and nothing waits for it."""
    job_id = planned(store, 1)
    held, ledger = claim(store), DirectLedger(store, chosen)
    (tmp_path / "secret").write_bytes(CONTENT)
    local_file(chosen, job_id, "other.csv", b"exchanged")
    (chosen.folder(job_id) / "link.csv").symlink_to(tmp_path / "secret")
    files = [named("other.csv"), named("link.csv")]
    row = replace(outcome(held), extra={**outcome(held).extra, "artifacts": files})
    assert ledger.finish(held, row) is not None
    assert [*chosen.file_store.sizes(job_id)] == []
    assert caplog.text.count("is lost") == 2


def test_weights_are_fetched_once_and_verified(store: Store, chosen: WorkerSettings, tmp_path: Path) -> None:
    source = add(store, train_spec())
    succeeded(store, store.jobs.get(source))
    store.artifacts.add(source, **chosen.file_store.write(source, WEIGHTS, CONTENT))
    add(store, evaluate_spec(weights_from=source))
    held, files = claim(store), StoredFiles(store, chosen)
    path = files.weights(held, source)
    assert (path, path.read_bytes()) == (chosen.folder(source) / WEIGHTS, CONTENT)
    chosen.file_store.write(source, WEIGHTS, b"another")
    assert files.weights(held, source).read_bytes() == CONTENT, "it is there"
    path.write_bytes(b"damaged")
    with pytest.raises(StoreAway, match="other bytes"):
        files.weights(held, source)
    assert not files.weights(held, "checkpoint-none").exists()


def test_a_training_goes_on_elsewhere(
    store: Store, chosen: WorkerSettings, place: S3Place, tmp_path: Path
) -> None:
    job_id = add(store, train_spec())
    held, files = claim(store), StoredFiles(store, chosen)
    names = []
    for step in (1, 2, 3):
        content = f"state {step}".encode()
        names.append(f"step-{step:09d}.{hashlib.sha256(content).hexdigest()[:16]}.pt")
        local_file(chosen, job_id, names[-1], content)
        files.keep(held, step)
    assert [*chosen.file_store.sizes(job_id)] == names[1:]
    assert sorted(path.name for path in chosen.folder(job_id).iterdir()) == names, "the training has its own"
    other = settings(tmp_path / "other", **settings_of(place))
    StoredFiles(store, other).resume(held)
    assert [path.name for path in other.folder(job_id).iterdir()] == names[2:]
    assert (other.folder(job_id) / names[2]).read_bytes() == b"state 3"


def test_files_of_jobs_that_ended_long_ago_go(store: Store, chosen: WorkerSettings, network: Network) -> None:
    job_id = add(store, train_spec())
    succeeded(store, store.jobs.get(job_id))
    store.artifacts.add(job_id, **chosen.file_store.write(job_id, WEIGHTS, CONTENT))
    with store._database.writing() as connection:
        connection.exec_driver_sql("UPDATE jobs SET finished_at = finished_at - 200000")
    later = chosen.model_copy(update={"keep_artifacts_days": 1.0})
    away = later.model_copy(update={"s3_endpoint": network.url})
    network.mode = "down"
    Retention(store, away).sweep_when_due()
    assert [*chosen.file_store.sizes(job_id)] == [WEIGHTS]
    assert Retention(store, later).sweep() == 1
    assert [*chosen.file_store.sizes(job_id)] == []
    assert store.artifacts.get(job_id, WEIGHTS).expired_at is not None


def test_a_fault_of_the_store_is_named_and_pages_do_without_files(
    store: Store, place: S3Place, network: Network, tmp_path: Path
) -> None:
    chosen = settings(tmp_path / "worker", **settings_of(place))
    with supervising(store, chosen):
        job_id = submit(store, "shards=1")
        assert ended(store, job_id).state == "succeeded"
    away = Settings(state=tmp_path / "service", **settings_of(replace(place, endpoint=network.url)))
    with running(create_app(away, store=store)) as transport:
        http = httpx.Client(transport=transport, base_url=BASE_URL)
        url = f"/api/v1/jobs/{job_id}/artifacts/outcomes-000-clean.csv"
        for network.mode, fault in (("down", "away"), ("lying", "gives other bytes than were stored")):
            ready = http.get("/readyz")
            assert (ready.status_code, ready.json()["artifacts"]) == (200, "not_writable")
            assert ready.json()["file_store"] == f"s3: {fault}"
            for text in (ready.text, http.get(url).text):
                assert place.bucket not in text
                assert place.access_key_id not in text
            assert http.get(f"/jobs/{job_id}").status_code == 200
        answer = http.get(url)
        assert (answer.status_code, answer.json()["error"]["type"]) == (503, "unavailable")
