from __future__ import annotations

import csv
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.service.conftest import provenance

JOBS = "/api/v1/jobs"


@pytest.fixture
def finished(
    api: httpx.Client, worker: Any, evaluate_body: Callable[..., dict[str, Any]]
) -> Callable[..., str]:
    def finished(*correct: list[int]) -> str:
        job_id = str(api.post(JOBS, json=evaluate_body()).json()["id"])
        worker.run(job_id, *correct)
        return job_id

    return finished


def test_two_jobs(api: httpx.Client, finished: Callable[..., str]) -> None:
    first, second = finished([1, 1, 1, 1], [1, 1, 0, 1]), finished([1, 1, 0, 1], [0, 0, 0, 1])
    answer = api.get("/api/v1/compare", params={"jobs": f"{first},{second}"})
    assert answer.status_code == 200
    comparison = answer.json()
    assert comparison["jobs"] == [first, second]
    clean, pgd = comparison["rows"]
    assert (clean["evaluation"], pgd["evaluation"]) == ("clean", "pgd")
    assert pgd["difference"] == -0.5
    assert pgd["test"] == {
        "name": "mcnemar", "p_value": 0.5, "adjusted_p_value": 1.0, "b": 2, "c": 0, "n": 4
    }  # fmt: skip
    assert (comparison["adjust"], comparison["tests"]) == ("holm", 2)
    assert pgd["ci_low"] <= -0.5 <= pgd["ci_high"]
    assert [value["job"] for value in pgd["values"]] == [first, second]
    assert api.get("/api/v1/compare", params={"jobs": f"{first},{second}"}).json() == comparison


@pytest.mark.parametrize("ended", [True, False])
def test_jobs_of_other_code_are_told(
    api: httpx.Client, worker: Any, evaluate_body: Callable[..., dict[str, Any]], ended: bool
) -> None:
    """An ended job has its code in the provenance, another in the identity of its planner ("s")."""
    ids, worker.identity = [], "planner"
    for source in ("s", "s", "t"):
        ids.append(str(api.post(JOBS, json=evaluate_body()).json()["id"]))
        worker.plan(ids[-1], 4, identity="planner")
        worker.evaluate(ids[-1], [1, 1, 0, 1])
        if ended or source == "t":
            worker.evaluate(ids[-1], [1, 0, 0, 1])
            made = {**provenance(), "code": {"version": "1", "source_sha256": source}}
            assert worker.store.jobs.succeed(ids[-1], made)
    found = [
        [
            one["code"]
            for one in api.get("/api/v1/compare", params={"jobs": f"{ids[0]},{other}"}).json()["warnings"]
        ]
        for other in ids[1:]
    ]
    assert [codes.count("different_code") for codes in found] == [0, 1]


def test_jobs_of_other_arithmetic_are_told(
    api: httpx.Client, worker: Any, evaluate_body: Callable[..., dict[str, Any]]
) -> None:
    """TF32 on a device without it is float32, and a screening counts where an attack ran so."""

    def ended(*codes: str, **execution: Any) -> str:
        body = evaluate_body(evaluations=[{"name": "clean"}], execution={"device": "auto", **execution})
        job_id = str(api.post(JOBS, json=body).json()["id"])
        worker.plan(job_id, 4)
        worker.evaluate(job_id, [1, 1, 0, 1])
        warnings = [{"code": code, "message": "m"} for code in codes]
        worker.store.results.save(job_id, 0, worker.store.results.of(job_id)[0] | {"warnings": warnings})
        assert worker.store.jobs.succeed(job_id, {**provenance(), "device": {"type": "cpu", "tf32": False}})
        return job_id

    exact, screened, tf32 = ended(), ended("screened", screening="bfloat16"), ended(dtype="tf32")

    def told(first: str, second: str) -> list[Any]:
        found = api.get("/api/v1/compare", params={"jobs": f"{first},{second}"}).json()["warnings"]
        return [one["evidence"]["arithmetic"] for one in found if one["code"] == "different_arithmetic"]

    assert told(exact, screened) == [[{"dtype": "float32"}, {"dtype": "float32", "screening": "bfloat16"}]]
    assert told(exact, tf32) == []
    assert told(exact, ended("subset", screening="bfloat16")) == []


def test_adjusted_p_values_by_name_and_in_csv(api: httpx.Client, finished: Callable[..., str]) -> None:
    first = finished([1] * 12, [1] * 12)
    second = finished([1] * 6 + [0] * 6, [1] * 7 + [0] * 5)
    jobs = {"jobs": f"{first},{second}"}
    p = [row["test"]["p_value"] for row in api.get("/api/v1/compare", params=jobs).json()["rows"]]
    assert p == [0.03125, 0.0625]
    for adjust, adjusted in {"holm": [0.0625, 0.0625], "benjamini_hochberg": [0.0625, 0.0625]}.items():
        found = api.get("/api/v1/compare", params={**jobs, "adjust": adjust}).json()
        assert found["adjust"] == adjust
        assert [row["test"]["adjusted_p_value"] for row in found["rows"]] == adjusted
    answer = api.get("/api/v1/compare", params={**jobs, "format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert [row["evaluation"] for row in rows] == ["clean", "pgd"]
    assert [(row["test"], row["adjust"], row["ci_method"]) for row in rows] == [
        ("mcnemar", "holm", "tango")
    ] * 2
    assert [float(row["adjusted_p_value"]) for row in rows] == [0.0625, 0.0625]
    wrong = api.get("/api/v1/compare", params={**jobs, "adjust": "bonferroni"})
    assert (wrong.status_code, wrong.json()["error"]["details"][0]["loc"]) == (422, ["query", "adjust"])


def test_jobs_without_results_are_409(
    api: httpx.Client, finished: Callable[..., str], evaluate_body: Callable[..., dict[str, Any]]
) -> None:
    queued = api.post(JOBS, json=evaluate_body()).json()["id"]
    api.post(f"{JOBS}/{queued}/cancel")
    answer = api.get("/api/v1/compare", params={"jobs": f"{finished([1], [1])},{queued}"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (409, "no_results")
    assert queued in answer.json()["error"]["message"]


def test_unknown_jobs_are_404(api: httpx.Client) -> None:
    answer = api.get("/api/v1/compare", params={"jobs": f"{'0' * 26},{'1' * 26}"})
    assert answer.status_code == 404


@pytest.mark.parametrize("jobs", ["", "a", "a,a", "a,b,a", ",".join(f"j{i}" for i in range(11))])
def test_bad_lists_are_422(api: httpx.Client, jobs: str) -> None:
    answer = api.get("/api/v1/compare", params={"jobs": jobs})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["loc"] == ["query", "jobs"]


def test_the_list_is_required(api: httpx.Client) -> None:
    answer = api.get("/api/v1/compare")
    assert (answer.status_code, answer.json()["error"]["details"][0]["loc"]) == (422, ["query", "jobs"])


def test_single_trainings_are_told_to_be_weights_and_not_methods(
    api: httpx.Client,
    worker: Any,
    finished: Callable[..., str],
    train_body: Callable[..., dict[str, Any]],
    evaluate_body: Callable[..., dict[str, Any]],
) -> None:
    ids = []
    for seed in range(2):
        trained = api.post(JOBS, json=train_body(seed=seed)).json()["id"]
        worker.train(trained)
        model = {"name": "tiny_vit", "weights": {"job": trained}}
        ids.append(api.post(JOBS, json=evaluate_body(model=model)).json()["id"])
        worker.run(ids[-1], [1, 0, 1, 1], [1, 0, 0, 1])
    note = api.get("/api/v1/compare", params={"jobs": ",".join(ids)}).json()["note"]
    assert "compares weights, not methods" in note
    assert "a study over seeds compares methods" in note
    untrained = finished([1, 1], [1, 0])
    assert api.get("/api/v1/compare", params={"jobs": f"{ids[0]},{untrained}"}).json()["note"] is None
