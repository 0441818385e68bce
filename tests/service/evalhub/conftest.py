"""A job file as EvalHub writes it, and a service whose jobs have these results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from evalhub.adapter import JobResults, JobSpec, JobStatusUpdate

from assay.service.client.notebook_tables import JobView
from assay.service.contract.results import Results
from tests.support.result_rows import row

JOB = "01m8krmj351ye6dahpgdqpmaq8"
SHARE = {"value": 0.5, "n": 100, "ci_low": 0.4, "ci_high": 0.6, "ci_method": "wilson", "unit": "proportion"}


def share(value: float | None, **changes: Any) -> dict[str, Any]:
    """A proportion of 100 examples with an interval of a tenth to both sides."""
    ends = {} if value is None else {"ci_low": value - 0.1, "ci_high": value + 0.1}
    return {**SHARE, "value": value, "higher_is_better": True, **ends, **changes}


def attack(name: str, epsilon: str, value: float | None, **changes: Any) -> dict[str, Any]:
    return row(
        name,
        {"top1": share(value), "attack_success_rate": share(0.2)},
        params={"epsilon": epsilon},
        **changes,
    )


def results_of(*rows: dict[str, Any], **changes: Any) -> Results:
    """Complete results of a CPU."""
    provenance = {
        "spec": {}, "seed": 7, "code": {"version": "0.1.0"}, "times": {}, "weights_sha256": "ab",
        "packages": {"python": "3.11.7", "torch": "2.10.0"}, "data_sha256": {"digits": "cd"},
        "device": {"type": "cpu", "name": "a processor"},
    }  # fmt: skip
    body = {"job": JOB, "complete": True, "evaluations": list(rows), "provenance": provenance}
    return Results.model_validate(body | {"headline": "Half hold."} | changes)


def job_of(rows: list[dict[str, Any]], **changes: Any) -> JobView:
    """A job with these rows, succeeded after ten seconds."""
    evaluations = [{"name": one["name"], "params": one["params"]} for one in rows]
    spec = {"data": {"name": "digits", "params": {}}, "evaluations": evaluations, "protocol": "pixel"}
    links = {"self": f"/api/v1/jobs/{JOB}", "results": f"/api/v1/jobs/{JOB}/results"}
    body = {
        "id": JOB, "kind": "evaluate", "name": "x", "tags": [], "state": "succeeded", "attempt": 1,
        "created_at": "2026-11-29T10:00:00.000Z", "started_at": "2026-11-29T10:00:00.000Z",
        "finished_at": "2026-11-29T10:00:10.000Z", "queue_position": None, "workers_online": 1, "message": "",
        "progress": {"done": 1, "total": 1, "unit": "examples", "eta_seconds": 0, "share": 1.0},
        "error": None, "spec": spec, "links": {**links, "events": "", "artifacts": ""},
    }  # fmt: skip
    return JobView.model_validate(body | changes)


class Callbacks:
    """Keeps what EvalHub is told."""

    def __init__(self) -> None:
        self.told: list[JobStatusUpdate] = []
        self.results: list[JobResults] = []

    def report_status(self, update: JobStatusUpdate) -> None:
        self.told.append(update)

    def report_results(self, results: JobResults) -> None:
        self.results.append(results)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes the file of a benchmark of the suite `quick` as EvalHub's server 1.0.2 does."""

    def write(parameters: Mapping[str, Any] | None = None, **changes: Any) -> Path:
        body = {
            "id": "5c9c3889-3e22-424d-a975-f29d7bfe97ad", "provider_id": "assay", "benchmark_id": "quick",
            "benchmark_index": 0, "model": {"url": "http://169.254.169.254/", "name": "checkpoint:net"},
            "num_examples": 20, "parameters": {"data": "digits"} if parameters is None else dict(parameters),
            "callback_url": "http://127.0.0.1:9", "primary_score": {"metric": "worst_case_accuracy_ci_low"},
        }  # fmt: skip
        path = tmp_path / "meta" / "job.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            json.dumps({key: value for key, value in (body | changes).items() if value is not None})
        )
        return path

    return write


@pytest.fixture
def config(written: Callable[..., Path]) -> Callable[..., JobSpec]:
    """The same as the SDK reads it."""
    return lambda *given, **changes: JobSpec.from_file(written(*given, **changes))
