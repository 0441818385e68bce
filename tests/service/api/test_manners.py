"""HEAD, OPTIONS, ETags, safe headers and problem documents, on every route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from assay.service.middleware import Manners
from assay.service.store.store import Store
from assay.service.telemetry import METHODS

JOBS = "/api/v1/jobs"
CHANGING = {"date", "x-request-id", "content-length"}


@pytest.fixture
def paths(
    api: httpx.Client, train_body: Callable[..., dict[str, Any]], app_store: Store, settings: Any
) -> list[str]:
    """A path of every GET route that answers with 200."""
    job_id = api.post(JOBS, json=train_body()).json()["id"]
    file: Path = settings.artifacts / job_id / "log.csv"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"x" * 200_000)
    app_store.artifacts.add(job_id, "log.csv", str(file), 200_000, "a" * 64, "text/csv")
    job = f"{JOBS}/{job_id}"
    return [
        *(
            "/healthz",
            "/readyz",
            "/metrics",
            "/docs",
            "/docs/start.js",
            "/docs/swagger-ui.css",
            "/openapi.json",
        ),
        *(JOBS, job, f"{job}/artifacts", f"{job}/artifacts/log.csv", "/api/v1/checkpoints"),
        *("/api/v1/catalog", "/api/v1/catalog?kind=model", "/api/v1/catalog/attack/pgd"),
    ]


def test_head_is_get_without_the_body(api: httpx.Client, paths: list[str]) -> None:
    for path in paths:
        get, head = api.get(path), api.head(path)
        assert (get.status_code, head.status_code, head.content) == (200, 200, b""), path
        assert get.content, path
        same = [
            {name: value for name, value in answer.headers.items() if name not in CHANGING}
            for answer in (get, head)
        ]
        assert same[0] == same[1], path
        if path not in ("/metrics", "/readyz"):
            assert head.headers["content-length"] == str(len(get.content)), path


def test_head_of_events_ends_at_once(api: httpx.Client, paths: list[str], transport: Any) -> None:
    job = next(path for path in paths if path.startswith(f"{JOBS}/"))
    answer = api.head(f"{job}/events")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert transport.app.state.feed.streams == 0
    assert transport.app.state.streams.count == 0


def test_head_is_counted_by_its_route(api: httpx.Client) -> None:
    api.head(f"{JOBS}/{'0' * 26}")
    route = 'assay_http_requests_total{method="HEAD",route="/api/v1/jobs/{job_id}",status="404"} 1.0'
    assert route in api.get("/metrics").text


def test_options_and_405_name_the_methods(api: httpx.Client, paths: list[str]) -> None:
    for path in [*paths, f"{JOBS}/x/cancel", "/api/v1/compare", "/api/v1/session"]:
        answer = api.options(path)
        assert (answer.status_code, answer.content) == (204, b""), path
        allowed = set(answer.headers["allow"].split(", "))
        assert "OPTIONS" in allowed
        assert ("GET" in allowed) == ("HEAD" in allowed)
        for method in METHODS - allowed:
            refused = api.request(method, path)
            assert refused.status_code == 405, (method, path)
            assert refused.headers["allow"] == answer.headers["allow"]
    assert api.options("/nope").status_code == 404
    assert api.head(f"{JOBS}/x/cancel").status_code == 405


def test_the_address_of_a_button_opened_in_a_browser_is_a_page(api: httpx.Client) -> None:
    opened = api.get("/jobs/x/cancel", headers={"Accept": "text/html"})
    assert (opened.status_code, opened.headers["allow"]) == (405, "OPTIONS, POST")
    assert opened.headers["content-type"].startswith("text/html")
    assert "GET is not allowed here" in opened.text


def test_every_answer_has_safe_headers(api: httpx.Client, paths: list[str]) -> None:
    answers = [api.get(path) for path in [*paths, "/nope", "/docs/nope", f"{JOBS}/x", "/api/v1/catalog?x=1"]]
    answers += [
        api.post("/healthz"),
        api.options(JOBS),
        api.get("/healthz", headers={"host": "evil.example"}),
    ]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff", answer.url
        assert answer.headers["referrer-policy"] == "no-referrer", answer.url
        assert answer.headers["cache-control"] == "private, no-cache", answer.url
        if answer.headers.get("content-type", "").startswith("text/html"):
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]


def test_a_page_without_a_policy_gets_the_strictest() -> None:
    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        await HTMLResponse("<p>", headers={"Cache-Control": "no-store"})(scope, receive, send)

    async def get() -> httpx.Response:
        transport = httpx.ASGITransport(Manners(page))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.get("/")

    headers = asyncio.run(get()).headers
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert headers["cache-control"] == "no-store"


def test_two_hosts_are_400(api: httpx.Client) -> None:
    answer = api.get("/healthz", headers=[("Host", "localhost"), ("Host", "localhost")])
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "malformed_request")


@pytest.mark.parametrize("given", ["{}", "W/{}", '"x", {}', '"x",W/{} , "y"', "*", " * "])
def test_what_is_known_is_304(api: httpx.Client, paths: list[str], given: str) -> None:
    for path in (path for path in paths if "catalog" in path or path.endswith("log.csv")):
        first = api.get(path)
        etag = first.headers["etag"]
        assert etag.startswith('"')
        for method in ("GET", "HEAD"):
            again = api.request(method, path, headers={"if-none-match": given.format(etag)})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
            assert again.headers["cache-control"] == "private, no-cache"


@pytest.mark.parametrize("given", ['"x"', "W/", "", "x", '"x" *', "**", "'{}'", "{}x"])
def test_what_is_not_known_is_sent(api: httpx.Client, given: str) -> None:
    etag = api.get("/api/v1/catalog").headers["etag"].strip('"')
    answer = api.get("/api/v1/catalog", headers={"if-none-match": given.format(etag)})
    assert answer.status_code == 200


def test_each_part_of_the_catalog_has_a_tag_of_its_own(api: httpx.Client) -> None:
    paths = ("", "?kind=model", "?kind=attack", "/attack/pgd", "/model/tiny_vit")
    assert len({api.get(f"/api/v1/catalog{path}").headers["etag"] for path in paths}) == len(paths)
    assert api.get("/api/v1/catalog/attack/nope", headers={"if-none-match": "*"}).status_code == 404


def test_a_part_of_a_file_is_sent_if_it_is_the_same(api: httpx.Client, paths: list[str]) -> None:
    path = next(path for path in paths if path.endswith("log.csv"))
    asked = {"range": "bytes=0-9"}
    assert api.get(path, headers=asked | {"if-range": f'"{"a" * 64}"'}).status_code == 206
    assert api.get(path, headers=asked | {"if-range": '"other"'}).status_code == 200
    assert api.head(path, headers=asked).headers["content-range"] == "bytes 0-9/200000"
