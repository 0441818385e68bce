"""Forms of pages: each carries the session's token, and a forged one changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from assay.service.api.direct_routes import DirectRoutes
from assay.service.app import create_app
from assay.service.dashboard.forms import form_fields
from assay.service.settings import Settings
from assay.service.store.store import Store

Make = Callable[..., dict[str, Any]]
PAGE = {"Accept": "text/html"}
SAFE = {"GET", "HEAD"}


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"require_keys": True})


@pytest.fixture
def key(app_store: Store) -> str:
    return app_store.keys.create("laptop", ["submit"])[1]


@pytest.fixture
def browser(api: httpx.Client, key: str) -> Iterator[httpx.Client]:
    assert api.post("/api/v1/session", data={"key": key, "next": "/"}).status_code == 303
    return api


def token(browser: httpx.Client) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', browser.get("/", headers=PAGE).text)
    assert found is not None
    return found[1]


def submitted(browser: httpx.Client, body: dict[str, Any]) -> str:
    headers = {"X-CSRF-Token": browser.get("/api/v1/session").json()["csrf_token"]}
    answer = browser.post("/api/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 201
    return str(answer.json()["id"])


def dependencies(dependant: Any) -> Iterator[Any]:
    yield dependant.call
    for inner in dependant.dependencies:
        yield from dependencies(inner)


def leaves(routes: Any) -> Iterator[Any]:
    for route in routes:
        if isinstance(route, DirectRoutes):
            continue  # they are in their routers too
        inside = getattr(route, "original_router", None)
        if inside is None:
            yield route
        else:
            yield from leaves(inside.routes)


def test_every_page_that_changes_something_checks_the_token(settings: Settings, app_store: Store) -> None:
    changing = [
        route
        for route in leaves(create_app(settings, store=app_store).routes)
        if set(route.methods) - SAFE and not route.path.startswith("/api/")
    ]
    assert {"/logout", "/jobs/{job_id}/cancel"} <= {route.path for route in changing}
    for route in changing:
        assert form_fields in list(dependencies(route.dependant)), route.path


def test_a_job_is_canceled_retried_and_deleted_by_forms(browser: httpx.Client, train_body: Make) -> None:
    job_id, form = submitted(browser, train_body()), {"csrf_token": token(browser)}
    for action, state in (("cancel", "canceled"), ("retry", "queued"), ("cancel", "canceled")):
        answer = browser.post(f"/jobs/{job_id}/{action}", data=form, headers=PAGE)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
        assert browser.get(f"/api/v1/jobs/{job_id}").json()["state"] == state
    assert browser.post(f"/jobs/{job_id}/delete", data=form).headers["location"] == "/jobs"
    assert browser.get(f"/api/v1/jobs/{job_id}").status_code == 404


def test_a_job_whose_planners_are_gone_is_planned_again_by_a_form(
    browser: httpx.Client, evaluate_body: Make, worker: Any
) -> None:
    job_id, form = submitted(browser, evaluate_body()), {"csrf_token": token(browser)}
    assert "Plan again" not in browser.get(f"/jobs/{job_id}").text
    worker.plan(job_id, identity="0123456789abcdef")
    assert f'action="/jobs/{job_id}/replan"' in browser.get(f"/jobs/{job_id}").text
    answer = browser.post(f"/jobs/{job_id}/replan", data=form, headers=PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/jobs/{job_id}")
    assert browser.get(f"/api/v1/jobs/{job_id}").json()["attempt"] == 2


@pytest.mark.parametrize("forged", [{}, {"csrf_token": ""}, {"csrf_token": "x" * 43}])
def test_a_form_without_the_token_changes_nothing(
    browser: httpx.Client, train_body: Make, forged: dict[str, str]
) -> None:
    job_id = submitted(browser, train_body())
    # A form of another site has the cookie where a browser does not know `SameSite`.
    answer = browser.post(f"/jobs/{job_id}/cancel", data=forged, headers=PAGE)
    assert answer.status_code in (403, 415)
    assert browser.get(f"/api/v1/jobs/{job_id}").json()["state"] == "queued"


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "multipart/form-data; boundary=x", ""])
def test_other_bodies_are_no_forms(browser: httpx.Client, train_body: Make, kind: str) -> None:
    job_id, body = submitted(browser, train_body()), f"csrf_token={token(browser)}"
    answer = browser.post(f"/jobs/{job_id}/cancel", content=body, headers={"Content-Type": kind})
    assert answer.status_code in (403, 415)
    assert browser.get(f"/api/v1/jobs/{job_id}").json()["state"] == "queued"


def test_forms_of_api_paths_still_need_the_header(browser: httpx.Client, train_body: Make) -> None:
    job_id = submitted(browser, train_body())
    answer = browser.post(f"/api/v1/jobs/{job_id}/cancel", data={"csrf_token": token(browser)})
    assert answer.status_code == 403


def test_a_field_given_twice_and_bytes_that_are_no_text_are_refused(browser: httpx.Client) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in (b"a=1&a=2", b"\xff=1", b"a=%ff", b"&".join([b"a%d=1" % i for i in range(541)])):
        assert browser.post("/logout", content=body, headers=headers).status_code == 400


def test_the_log_out_form_ends_the_session(browser: httpx.Client) -> None:
    answer = browser.post("/logout", data={"csrf_token": token(browser)})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert browser.get("/", headers=PAGE).status_code == 401


def test_a_key_with_the_scope_read_cannot_send_forms(
    api: httpx.Client, app_store: Store, train_body: Make
) -> None:
    text = app_store.keys.create("reader", ["read"])[1]
    api.post("/api/v1/session", data={"key": text, "next": "/"})
    answer = api.post(f"/jobs/{'0' * 26}/cancel", data={"csrf_token": token(api)}, headers=PAGE)
    assert answer.status_code == 403
    assert "scope" in answer.text
