"""Requests, answers and errors of the client."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.client import AssayClient, BadAnswer
from assay.service.client import transport as transport_module
from assay.service.client.transport import ERRORS, Unreachable
from assay.service.contract import errors
from assay.service.contract.results import Job
from tests.support.clients import answering

UNKNOWN = "01m7yq0tygpbr98qrkbw31n8h6"

Make = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module.time, "sleep", lambda seconds: None)


def test_the_key_goes_with_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(500)

    transport = httpx.MockTransport(handle)

    def calls(key: str | None) -> list[str | None]:
        seen.clear()
        with AssayClient("http://service.example", key, transport=transport) as client:
            for call in (client.ready, lambda: client.job(UNKNOWN), lambda: next(client.events(UNKNOWN))):
                with contextlib.suppress(errors.AssayError):
                    call()
            with contextlib.suppress(errors.AssayError):
                client.download(UNKNOWN, "x", Path("x"))
        return seen

    monkeypatch.delenv("ASSAY_KEY", raising=False)
    assert calls(None) == [None] * 4
    assert calls("assay_a_b") == ["Bearer assay_a_b"] * 4
    monkeypatch.setenv("ASSAY_KEY", "assay_c_d")
    assert calls(None) == ["Bearer assay_c_d"] * 4
    assert calls("assay_a_b") == ["Bearer assay_a_b"] * 4
    assert calls("") == [None] * 4
    for odd in ("a b", "a\r\nX-Other: 1", "é"):
        with pytest.raises(errors.Unauthorized) as caught:
            calls(odd)
        assert odd not in str(caught.value)


def test_errors_keep_their_details(client: AssayClient, train_body: Make) -> None:
    with pytest.raises(errors.InvalidSpec) as caught:
        client.submit(train_body(recipe={"name": "shortt"}))
    (detail,) = caught.value.details
    assert (detail.loc, detail.nearest) == (["recipe", "name"], "short")


def test_every_error_of_the_contract_is_known() -> None:
    assert ERRORS["not_found"] is errors.NotFound
    assert ERRORS["idempotency_mismatch"] is errors.IdempotencyMismatch
    assert {"unauthorized", "forbidden", "too_many_requests", "internal", "unavailable"} <= set(ERRORS)


def test_a_key_is_one_job(client: AssayClient, train_body: Make) -> None:
    first = client.submit(train_body(), idempotency_key="k")
    assert client.submit(train_body(), idempotency_key="k").id == first.id
    with pytest.raises(errors.IdempotencyMismatch):
        client.submit(train_body(seed=1), idempotency_key="k")


def test_a_broken_submission_is_repeated_under_one_key(client: AssayClient, train_body: Make) -> None:
    job = client.submit(train_body())
    keys = []

    def handle(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if len(keys) < 3:
            raise httpx.ReadError("reset")
        return httpx.Response(200, json=job.model_dump(mode="json"))

    with AssayClient(transport=httpx.MockTransport(handle)) as broken:
        assert broken.submit(train_body()).id == job.id
    assert len(keys) == 3
    assert len(set(keys)) == 1


def test_no_service_there_is_unreachable() -> None:
    with answering(*[httpx.ConnectError("refused")] * 4) as client:
        with pytest.raises(Unreachable, match=r"http://service\.example"):
            client.submit({})
        assert client.ready() is False


def test_a_key_that_cannot_be_sent_is_the_callers_error(train_body: Make) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.LocalProtocolError("Illegal header value")

    with (
        AssayClient(transport=httpx.MockTransport(refuse)) as client,
        pytest.raises(errors.InvalidSpec, match="Illegal header"),
    ):
        client.submit(train_body(), idempotency_key="a\nb")


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'"x"', b""])
def test_another_server_is_a_bad_answer(body: bytes) -> None:
    for status in (200, 502):
        with answering(httpx.Response(status, content=body)) as client, pytest.raises(BadAnswer):
            client.job(UNKNOWN)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            httpx.Response(200, json={"version": "9.9.9"}),
            f"9.9.9, this client's {version('assay-robustness')};",
        ),
        (httpx.Response(200, json={"version": version("assay-robustness")}), "Job.* of this version: "),
        (
            httpx.Response(404, json={"error": {"type": "not_found", "message": "", "details": []}}),
            "version is older",
        ),
        (httpx.Response(401, json={"error": {"type": "unauthorized", "message": "", "details": []}}), "Job"),
    ],
)
def test_an_answer_that_does_not_parse_tells_the_services_version(answer: httpx.Response, said: str) -> None:
    def service(request: httpx.Request) -> httpx.Response:
        return answer if request.url.path == "/version" else httpx.Response(200, json={"id": 7})

    with (
        AssayClient(transport=httpx.MockTransport(service)) as client,
        pytest.raises(BadAnswer, match=said),
    ):
        client.job(UNKNOWN)


def test_proxies_are_not_asked_about_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:1")
    with AssayClient("http://127.0.0.1:1") as local, AssayClient("http://service.example") as remote:
        assert (local._http.trust_env, remote._http.trust_env) == (False, True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_lacks_is_named_before_it_is_sent(value: float) -> None:
    spec = {"kind": "evaluate", "seed": 0, "evaluations": [{"name": "pgd", "params": {"epsilon": value}}]}
    with answering() as nowhere, pytest.raises(errors.InvalidSpec) as caught:
        nowhere.submit(spec | {"tags": (value,)})
    assert "evaluations[0].params.epsilon: must be a finite number (and 1 more)" in str(caught.value)
    assert [detail.loc for detail in caught.value.details] == [
        ["evaluations", 0, "params", "epsilon"],
        ["tags", 0],
    ]
    assert caught.value.details[0].given == str(value)


def test_fields_that_a_later_service_added_are_left_out_wherever_they_are() -> None:
    job = {
        **answers_job(), "later": 1, "progress": {**answers_job()["progress"], "later": {"deep": [1]}},
    }  # fmt: skip
    found = transport_module.parsed(Job, job)
    assert found == Job.model_validate(answers_job())
    with pytest.raises(BadAnswer, match="not a Job of this version"):
        transport_module.parsed(Job, {**job, "state": "unknown"})
    assert "later" in job


def answers_job() -> dict[str, Any]:
    progress = {"done": 1, "total": 2, "unit": "examples", "eta_seconds": None, "share": 0.5}
    fields = {"created_at": "x", "started_at": None, "finished_at": None, "deadline": None}
    return {
        "id": UNKNOWN, "kind": "evaluate", "name": "n", "state": "queued", "attempt": 1, "tags": [],
        "progress": progress,
        "queue_position": None, "workers_online": 1, "message": "", "error": None, "spec": {}, **fields,
        "links": {"self": "a", "results": "b", "events": "c", "artifacts": "d"},
    }  # fmt: skip
