"""Jobs through the client: submitted, listed, waited for, and what they wrote."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.client import AssayClient, BadAnswer
from assay.service.client import transport as transport_module
from assay.service.client.transport import Unreachable
from assay.service.contract import errors
from assay.service.contract.results import Job
from tests.support.clients import answering

UNKNOWN = "01m7yq0tygpbr98qrkbw31n8h6"

Make = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module.time, "sleep", lambda seconds: None)


def test_submit_and_look(client: AssayClient, train_body: Make) -> None:
    job = client.submit(train_body())
    assert job.state == "queued"
    assert client.job(job.id) == job


def test_submit_takes_text(client: AssayClient, train_body: Make) -> None:
    text = json.dumps(train_body())
    assert client.submit(text).id != client.submit(text.encode()).id
    with pytest.raises(errors.MalformedJson, match="given twice"):
        client.submit('{"kind": "train", "kind": "evaluate"}')


def test_dry_run(client: AssayClient, evaluate_body: Make) -> None:
    found = client.dry_run(evaluate_body())
    assert set(found) == {"spec", "estimate", "warnings", "data"}
    assert type(copy.deepcopy(found)) is dict
    assert list(client.jobs()) == []


def test_jobs_goes_through_all_pages(client: AssayClient, train_body: Make) -> None:
    ids = [client.submit(train_body()).id for _ in range(5)]
    assert [job.id for job in client.jobs(page_size=2)] == ids[::-1]
    assert [job.id for job in client.jobs(kind="evaluate")] == []
    with pytest.raises(errors.InvalidSpec):
        list(client.jobs(state="x"))


def test_life_of_a_job(client: AssayClient, train_body: Make) -> None:
    job = client.submit(train_body())
    assert client.cancel(job.id).state == "canceled"
    with pytest.raises(errors.InvalidState):
        client.cancel(job.id)
    assert client.retry(job.id).attempt == 2
    client.cancel(job.id)
    client.delete(job.id)
    with pytest.raises(errors.NotFound):
        client.job(job.id)


def test_tags_are_changed(client: AssayClient, train_body: Make) -> None:
    job = client.submit(train_body(tags=["a", "b"]))
    assert client.tag(job.id, add="paper", remove=["a", "z"]).tags == ["b", "paper"]
    assert [found.id for found in client.jobs(tag="paper")] == [job.id]
    assert list(client.jobs(tag="a")) == []


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", "../jobs", "?x", "#", UNKNOWN])
def test_odd_ids_are_not_found(client: AssayClient, job_id: str) -> None:
    for call in (client.job, client.cancel, client.delete, client.results, client.artifacts):
        with pytest.raises(errors.NotFound):
            call(job_id)


def test_wait_calls_back_until_the_end(client: AssayClient, train_body: Make, worker: Any) -> None:
    job = client.submit(train_body())
    seen: list[Job] = []

    def look(now: Job) -> None:
        seen.append(now)
        if len(seen) == 2:
            worker.train(job.id)

    assert client.wait(job.id, callback=look).state == "succeeded"
    assert [now.state for now in seen] == ["queued", "queued", "succeeded"]


def test_wait_outlives_a_restart_of_the_service(client: AssayClient, train_body: Make, worker: Any) -> None:
    job = client.submit(train_body())
    worker.train(job.id)
    unavailable = errors.Unavailable("the database is away").envelope().model_dump(mode="json")
    ended = httpx.Response(200, json=client.job(job.id).model_dump(mode="json"))
    away = [httpx.ConnectError("refused"), httpx.Response(503, json=unavailable)]
    with answering(*away, ended) as restarted:
        assert restarted.wait(job.id).state == "succeeded"


def test_wait_gives_up(client: AssayClient, train_body: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    job = client.submit(train_body())
    with pytest.raises(TimeoutError, match=job.id):
        client.wait(job.id, timeout_seconds=0)
    monkeypatch.setattr(transport_module, "RECONNECT_SECONDS", -1.0)
    hint = f"job {job.id} is kept there: once the service is back, `assay status {job.id} --wait` follows it"
    with answering(httpx.ConnectError("refused")) as gone, pytest.raises(Unreachable, match=hint):
        gone.wait(job.id)
    hint = "study s1 is kept there: once the service is back, `assay studies watch s1` follows it"
    with answering(httpx.ConnectError("refused")) as gone, pytest.raises(Unreachable, match=hint):
        gone.wait_study("s1")


def test_results(client: AssayClient, evaluate_body: Make, worker: Any) -> None:
    job = client.submit(evaluate_body())
    with pytest.raises(errors.NoResults):
        client.results(job.id)
    worker.run(job.id, [1, 1, 0, 1], [0, 0, 0, 1])
    assert client.results(job.id).evaluations[0].metrics["top1"].value == 0.75
    assert client.results_csv(job.id).startswith("evaluation,params,")
    other = client.submit(evaluate_body())
    worker.run(other.id, [1, 1, 0, 1], [0, 0, 0, 1])
    assert client.compare([job.id, other.id])["rows"][0]["difference"] == 0


@pytest.fixture
def artifact(client: AssayClient, train_body: Make, app_store: Any, settings: Any) -> tuple[str, Path]:
    """A job with the artifact `log.csv`, and the file."""
    job = client.submit(train_body())
    file: Path = settings.artifacts / job.id / "log.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 100_000)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    app_store.artifacts.add(job.id, "log.csv", str(file), 100_000, digest, "text/csv")
    return job.id, file


def test_downloads_are_checked(client: AssayClient, artifact: tuple[str, Path], tmp_path: Path) -> None:
    job_id, file = artifact
    assert [item.name for item in client.artifacts(job_id)] == ["log.csv"]
    assert client.download(job_id, "log.csv", tmp_path) == tmp_path / "log.csv"
    assert (tmp_path / "log.csv").read_bytes() == file.read_bytes()
    file.write_bytes(b"y" * 100_000)
    with pytest.raises(BadAnswer, match="sha256"):
        client.download(job_id, "log.csv", tmp_path / "other.csv")
    with pytest.raises(errors.NotFound):
        client.download(job_id, "nope", tmp_path / "nope")
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["log.csv"]
