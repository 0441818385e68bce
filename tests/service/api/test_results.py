from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.api.results import CSV_COLUMNS, to_csv
from assay.service.contract.results import Breakdown, EvaluationResult, Metric, Results, StageBreakdown

JOBS = "/api/v1/jobs"
METRIC = Metric(value=0.5, n=4, ci_low=0.1, ci_high=0.9, ci_method="wilson", higher_is_better=True)


@pytest.fixture
def job_id(api: httpx.Client, evaluate_body: Callable[..., dict[str, Any]]) -> str:
    return str(api.post(JOBS, json=evaluate_body()).json()["id"])


def test_before_the_first_evaluation_there_are_none(api: httpx.Client, job_id: str, worker: Any) -> None:
    for _ in range(2):
        answer = api.get(f"{JOBS}/{job_id}/results")
        assert (answer.status_code, answer.json()["error"]["type"]) == (409, "no_results")
        assert answer.json()["error"]["message"].endswith("has no results yet")
        worker.plan(job_id) if api.get(f"{JOBS}/{job_id}").json()["state"] == "queued" else None
    worker.fail(job_id)
    assert " is failed and has no results: " in api.get(f"{JOBS}/{job_id}/results").json()["error"]["message"]


def test_partial_results_are_not_complete(api: httpx.Client, job_id: str, worker: Any) -> None:
    worker.plan(job_id)
    worker.evaluate(job_id, [1, 1, 1, 0])
    results = api.get(f"{JOBS}/{job_id}/results").json()
    assert (results["complete"], results["error"], results["provenance"]) == (False, None, None)
    (clean,) = results["evaluations"]
    assert (clean["name"], clean["metrics"]["top1"]["value"]) == ("clean", 0.75)


def test_what_was_measured_before_a_failure_stays(api: httpx.Client, job_id: str, worker: Any) -> None:
    worker.plan(job_id)
    worker.evaluate(job_id, [1, 1, 1, 0])
    worker.fail(job_id)
    answer = api.get(f"{JOBS}/{job_id}/results")
    assert answer.status_code == 200
    assert answer.json()["complete"] is False
    assert answer.json()["error"] == {"type": "out_of_memory", "message": "8 GB were not enough"}


def test_a_failure_before_any_evaluation_says_so(api: httpx.Client, job_id: str, worker: Any) -> None:
    worker.fail(job_id)
    answer = api.get(f"{JOBS}/{job_id}/results")
    assert answer.status_code == 409
    assert "8 GB were not enough" in answer.json()["error"]["message"]


def test_complete_results(api: httpx.Client, job_id: str, worker: Any) -> None:
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    results = api.get(f"{JOBS}/{job_id}/results").json()
    assert results["complete"] is True
    assert [part["name"] for part in results["evaluations"]] == ["clean", "pgd"]
    assert results["provenance"]["seed"] == 0


def test_the_headline_is_of_what_there_is(api: httpx.Client, job_id: str, worker: Any) -> None:
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    found = api.get(f"/api/v1/jobs/{job_id}/results").json()
    assert found["headline"] == "1 of 4 images hold at 2/255 under the strongest attack run; clean 3 of 4."
    schema = api.get("/openapi.json").json()["components"]["schemas"]["Results"]
    assert schema["properties"]["headline"] == {"type": "string", "title": "Headline", "default": ""}
    assert "headline" not in schema.get("required", []), "services of earlier versions have none"


def test_checks_across_evaluations_warn(
    api: httpx.Client, worker: Any, evaluate_body: Callable[..., dict[str, Any]]
) -> None:
    grid = [{"name": "pgd", "params": {"epsilon": epsilon}} for epsilon in ("2/255", "4/255")]
    job_id = api.post(JOBS, json=evaluate_body(evaluations=grid)).json()["id"]
    worker.run(job_id, [1, 0, 0, 0], [1, 1, 1, 0])
    codes = [warning["code"] for warning in api.get(f"{JOBS}/{job_id}/results").json()["warnings"]]
    assert codes == ["accuracy_rises_with_epsilon"]


def test_a_finished_training_has_provenance_and_no_evaluations(
    api: httpx.Client, worker: Any, train_body: Callable[..., dict[str, Any]]
) -> None:
    job_id = api.post(JOBS, json=train_body()).json()["id"]
    worker.train(job_id)
    results = api.get(f"{JOBS}/{job_id}/results").json()
    assert (results["complete"], results["evaluations"]) == (True, [])
    assert results["provenance"] is not None


def test_csv_has_a_row_per_metric(api: httpx.Client, job_id: str, worker: Any) -> None:
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    answer = api.get(f"{JOBS}/{job_id}/results?format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == f'attachment; filename="assay-{job_id}.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [(row["evaluation"], row["metric"], row["value"], row["n"]) for row in rows] == [
        ("clean", "top1", "0.75", "4"),
        ("pgd", "top1", "0.25", "4"),
    ]
    assert rows[1]["params"] == '{"epsilon":"2/255","steps":10}'
    assert json.loads(rows[1]["data"])["name"] == "digits"


def test_other_formats_are_refused(api: httpx.Client, job_id: str) -> None:
    answer = api.get(f"{JOBS}/{job_id}/results?format=xml")
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["allowed"] == ["json", "csv", "robustbench"]


def evaluation(name: str, **rest: Any) -> EvaluationResult:
    return EvaluationResult(
        name=name,
        params={},
        data={},
        protocol="pixel",
        backend="native",
        metrics={"top1": METRIC},
        seconds=1.0,
        forward_passes=1,
        backward_passes=0,
        **rest,
    )


def csv_of(*evaluations: EvaluationResult) -> list[list[str]]:
    results = Results(job="j", complete=True, evaluations=list(evaluations), provenance=None)
    return list(csv.reader(io.StringIO(to_csv(results))))[1:]


@pytest.mark.parametrize("name", ["=1+1", "+x", "-x", "@x", "\tx", "=cmd|' /C calc'!A0"])
def test_csv_cells_cannot_be_formulas(name: str) -> None:
    assert csv_of(evaluation(name))[0][0] == f"'{name}"


def test_csv_numbers_stay_numbers() -> None:
    negative = METRIC.model_copy(update={"value": -0.5, "ci_low": None})
    row = csv_of(evaluation("x").model_copy(update={"metrics": {"m": negative}}))[0]
    assert row[6:10] == ["-0.5", "4", "", "0.9"]


def test_csv_lists_breakdowns() -> None:
    part = Breakdown(corruption="fog", severity=3, metrics={"top1": METRIC})
    assert [row[5] for row in csv_of(evaluation("corruptions", breakdown=[part]))] == ["top1", "fog/3/top1"]


def test_csv_lists_stages_and_json_keeps_them_apart_from_corruptions() -> None:
    counts = {"n": 4, "broken": 2, "forward_passes": 40, "backward_passes": 4, "seconds": 0.5}
    stage = StageBreakdown(stage="apgd_t", metrics={"top1": METRIC}, **counts)
    row = evaluation("autoattack", breakdown=[stage])
    assert [cells[5] for cells in csv_of(row)] == ["top1", "apgd_t/top1"]
    back = EvaluationResult.model_validate_json(row.model_dump_json())
    assert back.breakdown == [stage]
    assert set(back.model_dump()["breakdown"][0]) == {"stage", "metrics", *counts}


def test_results_as_robustbench_has_them(api: httpx.Client, job_id: str, worker: Any) -> None:
    worker.run(job_id, [1, 1, 1, 0], [1, 0, 0, 0])
    answer = api.get(f"{JOBS}/{job_id}/results", params={"format": "robustbench"})
    assert answer.status_code == 200
    (entry,) = answer.json()["entries"]
    assert (entry["name"], entry["dataset"], entry["clean_acc"]) == ("an evaluation", "digits", "75.00")
    assert (entry["architecture"], entry["autoattack_acc"]) == ("tiny_vit", None)
    assert entry["assay"]["spec"] == f"{JOBS}/{job_id}"
