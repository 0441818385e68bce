from __future__ import annotations

import contextlib
import copy
import hashlib
import json
from collections.abc import Callable, Iterator
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

UNKNOWN = "01m7yq0tygpbr98qrkbw31n8h6"
Make = Callable[..., dict[str, Any]]


@pytest.fixture
def client(transport: Any) -> Iterator[AssayClient]:
    with AssayClient(transport=transport) as client:
        yield client


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module.time, "sleep", lambda seconds: None)


def answering(*answers: httpx.Response | Exception) -> AssayClient:
    """A client whose calls get these answers, one after another."""
    left = list(answers)

    def handle(request: httpx.Request) -> httpx.Response:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return AssayClient("http://service.example", transport=httpx.MockTransport(handle))


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


def test_submit_and_look(client: AssayClient, train_body: Make) -> None:
    job = client.submit(train_body())
    assert job.state == "queued"
    assert client.job(job.id) == job


def test_submit_takes_text(client: AssayClient, train_body: Make) -> None:
    text = json.dumps(train_body())
    assert client.submit(text).id != client.submit(text.encode()).id
    with pytest.raises(errors.MalformedJson, match="given twice"):
        client.submit('{"kind": "train", "kind": "evaluate"}')


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


def test_nobody_there_is_unreachable() -> None:
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


def test_the_version_is_of_this_checkout_and_names_the_code_of_the_workers(
    client: AssayClient, app_store: Any
) -> None:
    app_store.workers.beat("a", "host", ["cpu"], 1, identity="0123456789abcdef")
    app_store.workers.beat("b", "host", ["cpu"], 2, identity="0123456789abcdef")
    app_store.workers.beat("of an earlier version", "host", ["cpu"], 3)
    found = client.version()
    assert (found.name, found.version, found.api) == ("assay-robustness", version("assay-robustness"), "v1")
    assert found.identities == {"0123456789abcdef": 2}
    assert len(found.catalog) >= 16


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
    hint = f"job {job.id} is kept there: once the service is back, `assay watch {job.id}` follows it"
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


def test_the_catalog_is_sent_once(transport: Any) -> None:
    statuses: list[int] = []

    class Watched(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response: httpx.Response = transport.handle_request(request)
            statuses.append(response.status_code)
            return response

    with AssayClient(transport=Watched()) as client:
        first = client.catalog()
        first[0]["name"] = "changed by the caller"
        assert client.catalog("attack") == client.catalog("attack")
        assert client.catalog()[0]["name"] != first[0]["name"]
    assert statuses == [200, 200, 304, 304]


def test_catalog(client: AssayClient) -> None:
    assert "pgd" in [item["name"] for item in client.catalog("attack")]
    assert len(client.catalog()) > len(client.catalog("attack"))
    assert client.component("attack", "pgd")["kind"] == "attack"
    with pytest.raises(errors.NotFound) as caught:
        client.component("attack", "pdg")
    assert caught.value.details[0].nearest == "pgd"


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
