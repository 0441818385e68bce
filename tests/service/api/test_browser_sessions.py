"""Browser sessions: the cookie, the token against forged calls, and the form."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from assay.service.api.login_page import own_path
from assay.service.settings import Settings
from assay.service.store.store import Store

Make = Callable[..., dict[str, Any]]
URL = "/api/v1/session"
ORIGIN = {"Origin": "http://127.0.0.1:8000"}
PAGE = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def key(app_store: Store) -> str:
    return app_store.keys.create("n", ["submit"])[1]


@pytest.fixture
def browser(api: httpx.Client, key: str) -> Iterator[httpx.Client]:
    """A client that is logged in, without the CSRF token."""
    assert api.post(URL, json={"key": key}).status_code == 201
    return api


def csrf(browser: httpx.Client) -> dict[str, str]:
    return {"X-CSRF-Token": browser.get(URL).json()["csrf_token"]}


def test_a_key_becomes_a_cookie_that_scripts_cannot_read(api: httpx.Client, key: str) -> None:
    answer = api.post(URL, json={"key": key})
    assert answer.status_code == 201
    assert answer.headers["cache-control"] == "no-store"
    cookie = answer.headers["set-cookie"]
    name, _, rest = cookie.partition("=")
    assert name == "assay_session"
    attributes = {part.strip().lower() for part in rest.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", "max-age=43200"} <= attributes
    assert not any(part.startswith("domain") or part == "secure" for part in attributes)
    body = answer.json()
    assert set(body) == {"csrf_token", "expires_at", "key_id", "name", "scopes", "tenant"}
    assert body["csrf_token"] not in cookie
    assert api.get(URL).json() == body
    assert api.get("/api/v1/jobs").status_code == 200


def test_the_cookie_is_for_https_only_when_it_came_over_it(transport: Any, key: str) -> None:
    with httpx.Client(transport=transport, base_url="https://127.0.0.1:8000") as client:
        assert "; Secure" in client.post(URL, json={"key": key}).headers["set-cookie"]


@pytest.mark.parametrize("body", [{"key": "assay_x"}, {"key": ""}])
def test_a_wrong_key_is_401(api: httpx.Client, body: dict[str, str]) -> None:
    answer = api.post(URL, json=body)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{}", 422),
        ("application/json", b'{"key": 1}', 422),
        ("application/json", b'{"key": "a", "x": 1}', 422),
        ("application/json", b"[" * 100, 400),
        ("text/plain", b'{"key": "a"}', 415),
        ("application/x-www-form-urlencoded", b"\xff", 400),
        ("application/x-www-form-urlencoded", b"key=a&key=b", 400),
        ("application/x-www-form-urlencoded", b"&".join([b"k=v"] * 50), 400),
        ("application/x-www-form-urlencoded", b"", 401),
        ("multipart/form-data; boundary=x", b"--x--", 415),
    ],
)
def test_odd_bodies(api: httpx.Client, kind: str, body: bytes, status: int) -> None:
    answer = api.post(URL, content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text


def test_changing_something_needs_the_token(browser: httpx.Client, train_body: Make) -> None:
    body, good = train_body(), csrf(browser)
    other = {"X-CSRF-Token": good["X-CSRF-Token"][:-1] + "~"}
    for headers in ({}, other, {"X-CSRF-Token": ""}, {"X-CSRF-Token": "é".encode()}, {"X-XSRF-Token": "x"}):
        answer = browser.post("/api/v1/jobs", json=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "forbidden")
        assert "X-CSRF-Token" in answer.json()["error"]["message"]
    twice = [("X-CSRF-Token", good["X-CSRF-Token"]), ("X-CSRF-Token", "x")]
    assert browser.post("/api/v1/jobs", json=body, headers=twice).status_code == 403
    in_query = browser.post("/api/v1/jobs", json=body, params={"csrf_token": good["X-CSRF-Token"]})
    assert in_query.status_code == 403
    made = browser.post("/api/v1/jobs", json=body, headers=good)
    assert made.status_code == 201
    for method, path in (("POST", "/cancel"), ("POST", "/retry"), ("DELETE", "")):
        assert browser.request(method, f"/api/v1/jobs/{made.json()['id']}{path}").status_code == 403
    assert browser.delete(URL).status_code == 403
    assert (
        browser.post("/api/v1/jobs/x/cancel", headers={**good, "Origin": "http://evil.example"}).status_code
        == 403
    )


def test_the_token_of_another_session_is_none(browser: httpx.Client, key: str, train_body: Make) -> None:
    first = csrf(browser)
    browser.post(URL, json={"key": key})
    assert browser.post("/api/v1/jobs", json=train_body(), headers=first).status_code == 403


def test_a_session_has_the_scopes_of_its_key(api: httpx.Client, app_store: Store, train_body: Make) -> None:
    api.post(URL, json={"key": app_store.keys.create("n", ["read"])[1]})
    assert api.post("/api/v1/jobs", json=train_body(), headers=csrf(api)).status_code == 403
    assert api.get("/api/v1/keys").status_code == 403


def test_a_wrong_key_in_the_header_is_not_saved_by_the_cookie(browser: httpx.Client) -> None:
    assert browser.get("/api/v1/jobs", headers={"Authorization": "Bearer x"}).status_code == 401
    assert browser.get("/api/v1/jobs", headers={"Authorization": ""}).status_code == 401


def test_a_key_needs_no_token(api: httpx.Client, key: str, train_body: Make) -> None:
    header = {"Authorization": f"Bearer {key}"}
    assert api.post("/api/v1/jobs", json=train_body(), headers=header).status_code == 201
    assert api.get(URL, headers=header).status_code == 404
    assert api.delete(URL, headers=header).status_code == 404


def test_of_two_cookies_of_the_name_none_counts(browser: httpx.Client) -> None:
    token = browser.cookies["assay_session"]
    browser.cookies.clear()
    for cookie, status in (
        (f"assay_session={token}", 200),
        (f"a=b; assay_session={token}; c", 200),
        (f"assay_session={token}; assay_session={token}", 401),
        (f"assay_session=x; assay_session={token}", 401),
        (f"Assay_Session={token}", 401),
        (f'assay_session="{token}"', 401),
        ("assay_session=", 401),
    ):
        assert browser.get("/api/v1/jobs", headers={"Cookie": cookie}).status_code == status, cookie


def test_logging_out_ends_the_session(browser: httpx.Client) -> None:
    token = browser.cookies["assay_session"]
    answer = browser.delete(URL, headers=csrf(browser))
    assert answer.status_code == 204
    assert 'assay_session=""' in answer.headers["set-cookie"]
    assert browser.get("/api/v1/jobs", headers={"Cookie": f"assay_session={token}"}).status_code == 401


def test_revoking_the_key_ends_its_sessions(browser: httpx.Client, app_store: Store) -> None:
    app_store.keys.revoke(browser.get(URL).json()["key_id"])
    assert browser.get("/api/v1/jobs").status_code == 401


def test_a_browser_gets_a_form_that_leads_back(api: httpx.Client, key: str) -> None:
    refused = api.get("/docs?a=%22%3E%3Cscript%3E", headers=PAGE)
    assert refused.status_code == 401
    assert refused.headers["content-type"] == "text/html; charset=utf-8"
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert "<script" not in refused.text
    assert not re.search(r"(?:src|href)=", refused.text)
    policy = refused.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    # With `no-referrer` the browser would send `Origin: null` with the form.
    assert refused.headers["referrer-policy"] == "same-origin"
    back = html.unescape(re.findall(r'name="next" value="([^"]*)"', refused.text)[0])
    assert back == "/docs?a=%22%3E%3Cscript%3E"
    answer = api.post(URL, data={"key": f" {key} ", "next": back}, headers={**PAGE, **ORIGIN})
    assert (answer.status_code, answer.headers["location"]) == (303, back)
    assert api.get("/docs", headers=PAGE).status_code == 200
    script = api.get("/docs/start.js").text
    assert 'fetch("/api/v1/session")' in script


def test_a_wrong_key_in_the_form_brings_it_again(api: httpx.Client) -> None:
    answer = api.post(URL, data={"key": "x", "next": "/docs#"}, headers={**PAGE, **ORIGIN})
    assert answer.status_code == 401
    assert "This key does not work." in answer.text
    assert "set-cookie" not in answer.headers


def test_a_form_of_another_site_logs_no_user_in(api: httpx.Client, key: str) -> None:
    for origin in ("http://evil.example", "null"):
        answer = api.post(URL, data={"key": key}, headers={**PAGE, "Origin": origin})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "/\\evil.example",
        "http://evil.example",
        "",
        "x",
        "/a\r\nSet-Cookie: x=y",
        "/a b",
        "/\t/evil.example",
        "/é",
        "/" + "x" * 2000,
    ],
)
def test_the_form_leads_nowhere_else(api: httpx.Client, key: str, path: str) -> None:
    assert own_path(path) == "/"
    assert api.post(URL, data={"key": key, "next": path}).headers["location"] == "/"


@pytest.mark.parametrize("accept", ["*/*", "application/json", "text/event-stream", ""])
def test_programs_get_json(api: httpx.Client, accept: str) -> None:
    answer = api.get("/api/v1/jobs", headers={"Accept": accept})
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "unauthorized")


def test_posts_of_browsers_get_json_too(api: httpx.Client) -> None:
    assert api.post("/api/v1/jobs", headers=PAGE).json()["error"]["type"] == "unauthorized"
