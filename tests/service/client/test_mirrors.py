"""Mirrors of jobs: real runs of MLflow (SQLite store and server) and of Weights & Biases (offline)."""

from __future__ import annotations

import json
import os
import secrets
import signal
import struct
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.service.cli import commands, main
from assay.service.client import AssayClient
from assay.service.client.trackers import TrackerError
from assay.service.contract.errors import NotFound
from tests.support.servers import free_port

# MLflow's libraries warn of each other.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "home"))


@pytest.fixture
def client(transport: Any) -> Iterator[AssayClient]:
    with AssayClient("http://127.0.0.1:8000", transport=transport) as client:
        yield client


def body(evaluate_body: Any) -> dict[str, Any]:
    return evaluate_body(tags=["paper", "first"])  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tracking URI of a SQLite store; making its tables takes seconds."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def project() -> str:
    return secrets.token_hex(4)


def mlflow_runs(uri: str, project: str) -> dict[str, Any]:
    """The runs of an experiment by the job that they are of."""
    from mlflow.tracking import MlflowClient

    store = MlflowClient(uri)
    experiment = store.get_experiment_by_name(project)
    assert experiment is not None
    return {run.data.tags["assay.job"]: run for run in store.search_runs([experiment.experiment_id])}


def wandb_records(folder: Path) -> list[Any]:
    """What is in the transaction log of each run, once all have ended: wandb's process writes them behind."""
    deadline = time.monotonic() + 20
    while True:
        found = _logged(folder)
        ended = sum(record.HasField("exit") for record in found)
        if ended >= len([*folder.glob("wandb/offline-run-*")]) or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def _logged(folder: Path) -> list[Any]:
    """What is in the transaction logs so far, oldest first.

    A log is 7 bytes, then blocks of 32 KiB with parts of records: checksum, length (2 bytes), type (1 whole,
    2 first, 3 middle, 4 last), content.
    """
    from wandb.proto import wandb_internal_pb2

    found = []
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        data, place, parts = file.read_bytes(), 7, b""
        while place + 7 <= len(data):
            if 32768 - place % 32768 < 7:
                place += 32768 - place % 32768
                continue
            _, length, kind = struct.unpack_from("<IHB", data, place)
            parts += data[place + 7 : place + 7 + length]
            place += 7 + length
            if kind in (1, 4):
                found.append(wandb_internal_pb2.Record.FromString(parts))
                parts = b""
    return found


def check_mirror(client: AssayClient, worker: Any, job: str, uri: str, project: str) -> None:
    """Mirrors a job while it runs and after it, and reads the run back."""
    worker.plan(job)
    worker.evaluate(job, [1, 1, 1, 1])
    (first,) = client.mirror(job, "mlflow", tracking_uri=uri, project=project)
    run = mlflow_runs(uri, project)[job]
    assert (run.info.status, run.info.run_id) == ("RUNNING", first.run)
    assert run.data.metrics["clean/top1"] == 1.0
    assert not any(name.startswith("pgd") for name in run.data.metrics)
    worker.evaluate(job, [1, 1, 1, 0])
    assert worker.store.jobs.succeed(job, provenance())
    for _ in range(2):  # again: the same run
        assert client.mirror(job, "mlflow", tracking_uri=uri, project=project)[0].run == first.run
    runs = mlflow_runs(uri, project)
    assert runs.keys() == {job}
    run = runs[job]
    results = client.results(job)
    top1 = results["pgd"].top1
    assert run.info.status == "FINISHED"
    assert {
        name: run.data.metrics[f"pgd_epsilon_2_255/top1{name}"] for name in ("", "_ci_low", "_ci_high", "_n")
    } == {
        "": top1.value,
        "_ci_low": top1.ci_low,
        "_ci_high": top1.ci_high,
        "_n": 4.0,
    }
    assert run.data.params["model.name"] == "tiny_vit"
    assert run.data.params["evaluations.1.params.epsilon"] == "2/255"
    tags = run.data.tags
    assert (tags["assay.state"], tags["assay.tags"], tags["assay.protocol"]) == (
        "succeeded",
        "paper,first",
        "pixel",
    )
    assert (tags["assay.weights_sha256"], tags["assay.data_sha256.digits"]) == ("w" * 64, "d" * 64)
    assert (tags["assay.code_version"], tags["mlflow.runName"]) == ("0.1.0", "an evaluation")
    assert artifact(uri, run, "results.json")["job"] == job
    assert artifact(uri, run, "signature.json")["payloadType"] == "application/vnd.in-toto+json"


def artifact(uri: str, run: Any, name: str) -> Any:
    from mlflow.tracking import MlflowClient

    return json.loads(Path(MlflowClient(uri).download_artifacts(run.info.run_id, name)).read_text())


def provenance() -> dict[str, Any]:
    return {
        "spec": {},
        "seed": 0,
        "code": {"version": "0.1.0", "commit": "abc"},
        "packages": {},
        "device": {},
        "weights_sha256": "w" * 64,
        "data_sha256": {"digits": "d" * 64},
        "times": {},
    }


@pytest.mark.costly
def test_a_job_is_one_run_of_mlflow(
    client: AssayClient, worker: Any, evaluate_body: Any, mlflow_store: str, project: str
) -> None:
    job = client.submit(body(evaluate_body)).id
    check_mirror(client, worker, job, mlflow_store, project)


@pytest.mark.slow
def test_a_job_is_one_run_of_an_mlflow_server(
    client: AssayClient, worker: Any, evaluate_body: Any, tmp_path: Path, unused_port: int
) -> None:
    address = f"http://127.0.0.1:{unused_port}"
    command = [sys.executable, "-m", "mlflow", "server", "--port", str(unused_port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path / 'server.db'}"]
    command += ["--artifacts-destination", str(tmp_path / "artifacts")]
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, start_new_session=True)
    try:
        for _ in range(600):
            assert server.poll() is None, (tmp_path / "server.log").read_text()
            try:
                urllib.request.urlopen(f"{address}/health", timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        check_mirror(client, worker, client.submit(body(evaluate_body)).id, address, "assay")
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # with the processes that it has started
        server.wait(30)


@pytest.fixture
def unused_port() -> int:
    return free_port()


@pytest.mark.costly
def test_the_jobs_of_a_study_are_runs_below_its_run(
    client: AssayClient, evaluate_body: Any, mlflow_store: str, project: str
) -> None:
    arms = [{"name": name, "model": {"name": name}} for name in ("tiny_vit", "other_vit")]
    evaluations = evaluate_body()["evaluations"]
    spec = {"kind": "study", "name": "models", "seeds": 2, "arms": arms, "evaluations": evaluations}
    study = client.submit_study({**spec, "data": {"name": "digits"}, "recipe": {"name": "short"}})
    for _ in range(2):
        found = client.mirror(study.id, "mlflow", tracking_uri=mlflow_store, project=project)
    runs = mlflow_runs(mlflow_store, project)
    parent = runs.pop(study.id)
    jobs = {job for arm in study.runs for run in arm.runs for job in (run.train, run.evaluate)}
    assert len(jobs) == 8
    assert runs.keys() == jobs == {one.job for one in found} - {study.id}
    assert {run.data.tags["mlflow.parentRunId"] for run in runs.values()} == {parent.info.run_id}
    assert artifact(mlflow_store, parent, "study.json")["id"] == study.id


@pytest.mark.costly
def test_a_job_is_a_run_of_wandb(
    client: AssayClient, worker: Any, evaluate_body: Any, tmp_path: Path
) -> None:
    job = client.submit(body(evaluate_body)).id
    worker.run(job, [1, 1, 1, 1], [1, 1, 1, 0])
    assert client.mirror(job, "wandb", project="robustness")[0].run == job
    records = wandb_records(tmp_path)
    (run,) = [record.run for record in records if record.HasField("run")]
    assert (run.run_id, run.project, run.display_name, list(run.tags)) == (
        job,
        "robustness",
        "an evaluation",
        ["paper", "first"],
    )
    summary = {
        "/".join(item.nested_key) or item.key: json.loads(item.value_json)
        for record in records
        for item in record.summary.update
    }
    assert summary["pgd_epsilon_2_255/top1"] == 0.75
    assert summary["pgd_epsilon_2_255/top1_n"] == 4
    config = {item.key: json.loads(item.value_json) for record in records for item in record.config.update}
    assert config["model"]["name"] == "tiny_vit"
    assert config["assay"]["assay.job"] == job
    (artifact,) = [record.artifact for record in records if record.HasField("artifact")]
    assert {entry.path for entry in artifact.manifest.contents} == {"results.json", "signature.json"}
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0]


def test_follow_mirrors_each_evaluation_and_ends_with_the_job(
    client: AssayClient, worker: Any, evaluate_body: Any, mlflow_store: str, project: str
) -> None:
    job, uri = client.submit(body(evaluate_body)).id, mlflow_store
    seen: list[tuple[str, int]] = []

    def told(one: Any) -> None:
        seen.append((one.state, one.metrics))
        # The worker goes on as the mirror has told what it saw.
        step = {1: lambda: worker.plan(job), 2: lambda: worker.evaluate(job, [1, 1, 1, 1])}
        step |= {
            3: lambda: worker.evaluate(job, [1, 1, 1, 0]),
            4: lambda: worker.store.jobs.succeed(job, provenance()),
        }
        if len(seen) in step:
            step[len(seen)]()

    client.mirror(
        job, "mlflow", tracking_uri=uri, project=project, follow=True, poll_seconds=0.0, callback=told
    )
    assert seen == [("queued", 0), ("running", 0), ("running", 4), ("running", 8), ("succeeded", 8)]
    assert mlflow_runs(uri, project)[job].info.status == "FINISHED"


def test_a_canceled_job_is_a_killed_run(
    client: AssayClient, evaluate_body: Any, mlflow_store: str, project: str
) -> None:
    job, uri = client.submit(body(evaluate_body)).id, mlflow_store
    client.cancel(job)
    client.mirror(job, "mlflow", tracking_uri=uri, project=project)
    assert mlflow_runs(uri, project)[job].info.status == "KILLED"


def test_what_is_wrong_is_one_sentence(
    client: AssayClient,
    evaluate_body: Any,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    transport: Any,
) -> None:
    job = client.submit(body(evaluate_body)).id
    monkeypatch.setattr(commands, "AssayClient", lambda url: AssayClient(url, transport=transport))
    with pytest.raises(NotFound, match="no job and no study"):
        client.mirror("01jd3q0x5v8f7m2n9k4t6w1z0y", "wandb")
    with pytest.raises(TrackerError, match="MLflow"):
        client.mirror(job, "mlflow", tracking_uri="http://127.0.0.1:9")
    assert main.main(["mirror", job, "--to", "mlflow", "--tracking-uri", "http://127.0.0.1:9"]) == 3
    assert main.main(["mirror", job, "--to", "wandb", "--tracking-uri", "http://127.0.0.1:9"]) == 2
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main.main(["mirror", job, "--to", "wandb"]) == 2
    assert 'pip install "assay-robustness[wandb]"' in capsys.readouterr().err
