"""Requests have an id, a line in the log, and are counted by route; what clients make up is not kept."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import Any

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from assay.service.contract import logs
from assay.service.telemetry import BOUNDS, Requests, Telemetry
from tests.support.spans import CALLER, CALLERS_TRACE, recorded

JOB = "01m7yq0tygpbr98qrkbw31n8h6"


def requests_of(transport: Any) -> Requests:
    requests: Requests = transport.app.state.numbers._requests
    return requests


@pytest.mark.parametrize(
    ("method", "path", "counted"),
    [
        ("GET", f"/api/v1/jobs/{JOB}?secret=x", ("/api/v1/jobs/{job_id}", "GET", "422")),
        ("GET", f"/api/v1/jobs/{JOB}", ("/api/v1/jobs/{job_id}", "GET", "404")),
        ("GET", "/healthz", ("/healthz", "GET", "200")),
        ("GET", "/wp-login.php", ("other", "GET", "404")),
        ("BREW", "/healthz", ("/healthz", "other", "405")),
        ("PUT", "/api/v1/jobs", ("/api/v1/jobs", "PUT", "405")),
    ],
)
def test_answers_are_counted_by_route(
    api: httpx.Client, transport: Any, method: str, path: str, counted: tuple[str, str, str]
) -> None:
    api.request(method, path)
    assert requests_of(transport).responses() == {counted: 1}
    ((route, which), latency) = requests_of(transport).latencies().popitem()
    assert (route, which) == counted[:2]
    assert sum(latency.counts) == 1
    assert latency.seconds > 0


def test_what_the_outer_layers_refuse_is_counted_too(api: httpx.Client, transport: Any) -> None:
    api.get("/healthz", headers={"host": "evil.example"})
    assert requests_of(transport).responses() == {("other", "GET", "403"): 1}


def test_a_request_leaves_a_line_without_its_query(
    api: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "assay.service.access")
    answer = api.get(f"/api/v1/jobs/{JOB}?token=hunter2", headers={"X-Request-ID": "abc-1"})
    assert answer.headers["x-request-id"] == "abc-1"
    (record,) = [record for record in caplog.records if record.name == "assay.service.access"]
    fields = record.fields  # type: ignore[attr-defined]
    assert fields.pop("ms") > 0
    assert fields == {"method": "GET", "route": "/api/v1/jobs/{job_id}", "status": "422"}
    assert "hunter2" not in record.getMessage()
    assert JOB not in record.getMessage()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
def test_health_is_only_told_to_who_debugs(
    api: httpx.Client, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.INFO, "assay.service.access")
    assert api.get(path).status_code == 200
    assert [record for record in caplog.records if record.name == "assay.service.access"] == []


@pytest.mark.parametrize("given", ["", "x" * 65, 'a"b', "a b"])
def test_an_id_that_is_none_is_replaced(api: httpx.Client, given: str) -> None:
    found = api.get("/healthz", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert found != given
    assert len(found) == 16


def test_what_is_logged_meanwhile_has_the_id_of_the_request(
    api: httpx.Client, app_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def line() -> dict[str, Any]:
        record = logging.LogRecord("x", logging.INFO, "x", 1, "text", (), None)
        found: dict[str, Any] = json.loads(logs.JsonFormatter().format(record))
        return found

    seen = []
    page = app_store.jobs.listed

    def spy(**options: Any) -> Any:
        seen.append(line()["request"])
        return page(**options)

    monkeypatch.setattr(app_store.jobs, "listed", spy)
    answer = api.get("/api/v1/jobs")
    assert seen == [answer.headers["x-request-id"]]
    assert "request" not in line()


def test_an_application_that_raises_is_counted() -> None:
    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("no answer at all")

    requests = Requests()
    scope = {"type": "http", "method": "GET", "path": "/x", "headers": []}
    with pytest.raises(RuntimeError, match="no answer at all"):
        asyncio.run(Telemetry(broken, requests)(scope, None, None))  # type: ignore[arg-type]
    assert requests.responses() == {("other", "GET", "none"): 1}


def test_a_bound_belongs_to_its_bucket() -> None:
    requests = Requests()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.01, BOUNDS[-1] * 2):
        requests.note("/x", "GET", "200", seconds)
    (latency,) = requests.latencies().values()
    assert latency.counts == [2, 1, *[0] * (len(BOUNDS) - 2), 1]


def test_a_request_is_a_span_below_the_callers_without_its_query(api: httpx.Client) -> None:
    with recorded() as kept:
        api.get(f"/api/v1/jobs/{JOB}?token=hunter2", headers={"traceparent": CALLER})
        api.get("/healthz", headers={"traceparent": CALLER})
        api.get(f"/api/v1/jobs/{JOB}", headers=[("traceparent", CALLER), ("traceparent", CALLER)])
    below, root = kept.get_finished_spans()
    assert below.name == root.name == "GET /api/v1/jobs/{job_id}"
    assert f"{below.context.trace_id:032x}" == CALLERS_TRACE
    assert root.parent is None, "of two contexts neither is believed"
    assert dict(root.attributes or {}) == {
        "http.request.method": "GET",
        "http.route": "/api/v1/jobs/{job_id}",
        "http.response.status_code": 404,
    }
    assert "hunter2" not in below.to_json()


def test_lines_of_a_traced_request_name_the_trace(api: httpx.Client) -> None:
    stream, logger = io.StringIO(), logging.getLogger("assay.service.access")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        api.get("/api/v1/jobs", headers={"traceparent": CALLER})
        api.get("/api/v1/jobs", headers={"traceparent": "made up"})
    finally:
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    traced, plain = map(json.loads, stream.getvalue().splitlines())
    assert traced["trace_id"] == CALLERS_TRACE
    assert "trace_id" not in plain
