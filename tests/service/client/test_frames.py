"""Data frames of results: one row a number, each column with its type."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pandas
import pytest

from assay.service.client import AssayClient, AsyncAssayClient
from assay.service.contract.errors import NoResults, NotFound
from assay.service.reports.formats.csv_text import COLUMNS

Make = Callable[..., dict[str, Any]]
URL = "http://127.0.0.1:8000"


@pytest.fixture
def client(transport: httpx.BaseTransport) -> AssayClient:
    return AssayClient(URL, transport=transport)


@pytest.fixture
def finished(client: AssayClient, worker: Any, evaluate_body: Make) -> Callable[..., Any]:
    def finished(*correct: list[int], **fields: Any) -> Any:
        job = client.submit(evaluate_body(**fields))
        worker.run(job.id, *correct)
        return job

    return finished


def study_spec() -> dict[str, Any]:
    arms = [{"name": name, "model": {"name": name}} for name in ("tiny_vit", "other_vit")]
    return {
        "kind": "study", "arms": arms, "seeds": 1, "data": {"name": "digits"},
        "recipe": {"name": "short"}, "evaluations": [{"name": "clean"}, {"name": "pgd"}],
    }  # fmt: skip


def test_one_row_a_number_with_its_parameters(client: AssayClient, finished: Callable[..., Any]) -> None:
    first = finished([1, 1, 0, 1], [0, 0, 0, 1], name="=1+1")
    second = finished([1, 1, 1, 1], [0, 0, 0, 0], seed=2**63 - 1)
    frame = client.frame([first.id, second.id])
    assert list(frame.columns) == [*COLUMNS, "epsilon", "steps"]
    assert list(frame["job"]) == [first.id] * 2 + [second.id] * 2
    assert list(frame["value"]) == [0.75, 0.25, 1.0, 0.0]
    assert frame["name"][0] == "=1+1"
    assert list(frame["seed"]) == [0, 0, 2**63 - 1, 2**63 - 1]
    attacked = frame[frame["epsilon"] == "2/255"]
    assert list(attacked["attack"]) == ["pgd", "pgd"]
    assert list(attacked["steps"]) == [10, 10]
    assert frame["steps"].isna().tolist() == [True, False, True, False]
    assert (frame["ci_low"] <= frame["value"]).all()


def test_columns_have_types(client: AssayClient, finished: Callable[..., Any]) -> None:
    types = client.frame(finished([1], [0])).dtypes
    for name, kind in {"value": "float64", "n": "Int64", "seed": "Int64", "steps": "Int64"}.items():
        assert types[name] == kind
    for name in ("job", "attack", "unit", "weights_sha256", "epsilon"):
        assert isinstance(types[name], pandas.StringDtype)


def test_jobs_without_results_are_left_out_but_by_their_id(
    client: AssayClient, finished: Callable[..., Any], train_body: Make
) -> None:
    queued, done = client.submit(train_body()), finished([1], [1])
    assert set(client.frame(client.jobs())["job"]) == {done.id}
    assert len(client.frame([done, done.id])) == 2
    with pytest.raises(NoResults):
        client.frame([done.id, queued.id])
    with pytest.raises(NoResults, match="none of these"):
        client.frame([queued])
    with pytest.raises(NoResults, match="none of these"):
        client.frame([])


def test_a_study_gives_its_evaluations(client: AssayClient, worker: Any) -> None:
    study = client.submit_study(study_spec())
    with pytest.raises(NoResults):
        client.frame(study.id)
    runs = [run for arm in study.runs for run in arm.runs]
    worker.train(runs[0].train)
    worker.run(runs[0].evaluate, [1, 0], [0, 0])
    frame = client.frame(study.id)
    assert set(frame["job"]) == {runs[0].evaluate}
    assert list(frame["value"]) == [0.5, 0.0]
    pandas.testing.assert_frame_equal(client.frame(study), frame)


def test_an_id_of_nothing_is_told(client: AssayClient) -> None:
    with pytest.raises(NotFound, match=f"no job and no study '{'0' * 26}'"):
        client.frame("0" * 26)


def test_the_client_for_asyncio_has_it(transport: httpx.BaseTransport, finished: Callable[..., Any]) -> None:
    job = finished([1], [0])

    async def work() -> Any:
        async with AsyncAssayClient(URL, transport=transport) as client:
            return await client.frame([job])

    assert list(asyncio.run(work())["value"]) == [1.0, 0.0]


def test_without_pandas_the_command_is_told(client: AssayClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas: pip install 'assay-robustness\[frame\]'"):
        client.frame("x")


@pytest.mark.parametrize(
    ("params", "kind", "shown"),
    [
        ([1, 2], "Int64", [1, 2]),
        ([1, 0.5], "Float64", [1.0, 0.5]),
        ([True, False], "boolean", [True, False]),
        ([[1, 3], {"a": 1}], "string", ["[1,3]", '{"a":1}']),
        ([None, None], "object", [None, None]),
        ([0.5, "2/255"], "object", [0.5, "2/255"]),
        ([2**70, 1], "object", [2**70, 1]),
    ],
)
def test_parameters_of_every_kind(params: list[Any], kind: str, shown: list[Any]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        number = int(request.url.path.split("/")[4])
        metric = {
            "value": 0.5, "n": 2, "ci_low": 0.1, "ci_high": 0.9, "ci_method": "wilson",
            "higher_is_better": True, "unit": "proportion",
        }  # fmt: skip
        row = {
            "name": "pgd", "params": {"size": params[number], "value": 1}, "data": {"name": "digits"},
            "protocol": "pixel", "backend": "native", "metrics": {"top1": metric}, "seconds": 1.0,
            "forward_passes": 1, "backward_passes": 0,
        }  # fmt: skip
        if request.url.path.endswith("/results"):
            results = {"job": str(number), "complete": True, "evaluations": [row], "provenance": None}
            return httpx.Response(200, json=results)
        return httpx.Response(200, json=job_of(str(number)))

    frame = AssayClient(URL, transport=httpx.MockTransport(answer)).frame(["0", "1"])
    assert str(frame["size"].dtype) == kind
    assert frame["size"].tolist() == shown
    assert frame["param_value"].tolist() == [1, 1]


def job_of(job_id: str, **fields: Any) -> dict[str, Any]:
    job = {
        "id": job_id, "kind": "evaluate", "name": "", "tags": [], "state": "succeeded", "attempt": 1,
        "created_at": "2030-01-01T00:00:00Z", "started_at": None, "finished_at": None,
        "progress": {"done": 2, "total": 2, "unit": "examples", "eta_seconds": None},
        "queue_position": None, "workers_online": 1, "message": "", "error": None,
        "spec": {"model": {"name": "tiny_vit"}, "data": {"name": "digits"}, "seed": 0},
        "links": {"self": "", "results": "", "events": "", "artifacts": ""},
    }  # fmt: skip
    return job | fields
