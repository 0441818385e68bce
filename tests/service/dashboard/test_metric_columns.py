"""Columns of the list of jobs with metrics of evaluations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from assay.service.dashboard import metric_columns
from assay.service.store.store import Store
from assay.service.store.tenants import TenantStore, View
from tests.support.pages import Tags, page

Make = Callable[..., dict[str, Any]]
CLEAN, WEAK = "clean: top1", "pgd epsilon=2/255: top1"
STRONG = "pgd epsilon=8/255 steps=20: top1"


def address(*names: str, **more: str) -> str:
    return f"/jobs?{urlencode([*(('metrics', name) for name in names), *more.items()])}"


def cells(text: str, name: str) -> list[str]:
    """The texts of a column, row by row."""
    cell = rf'<td data-label="{re.escape(name)}" class="number">(?:<span[^>]*>)?([^<]*)'
    return [text.replace("\N{EN DASH}", "") for text in re.findall(cell, text)]


@pytest.fixture
def ids(api: httpx.Client, worker: Any, evaluate_body: Make, train_body: Make) -> list[str]:
    """A training without results, and two evaluations, of which the second has a stronger attack."""
    strong = [{"name": "clean"}, {"name": "pgd", "params": {"epsilon": "8/255", "steps": 20}}]
    bodies = train_body(), evaluate_body(), evaluate_body(evaluations=strong)
    found = [str(api.post("/api/v1/jobs", json=body).json()["id"]) for body in bodies]
    worker.run(found[1], [1, 1, 1, 0], [1, 1, 0, 0])
    worker.run(found[2], [1, 1, 1, 1], [0, 0, 0, 1])
    return found


def test_columns_have_the_metrics_that_the_address_names(api: httpx.Client, ids: list[str]) -> None:
    text = page(api, address(WEAK, CLEAN, sort="created"))
    assert cells(text, WEAK) == ["", "50.0 %", ""]
    assert cells(text, CLEAN) == ["", "75.0 %", "100.0 %"]
    assert 'title="[15.0 %, 85.0 %], n = 4"' in text
    assert cells(page(api, address(STRONG, sort="created")), STRONG) == ["", "", "25.0 %"]


def test_metrics_of_the_jobs_on_the_page_are_offered(api: httpx.Client, ids: list[str]) -> None:
    found = Tags(page(api, address(WEAK))).found
    options = [
        attrs["value"] for tag, attrs in found if tag == "option" and ": " in (attrs.get("value") or "")
    ]
    assert options == [CLEAN, STRONG]
    ticked = [attrs["value"] for _, attrs in found if attrs.get("name") == "metrics" and "checked" in attrs]
    assert ticked == [WEAK]
    links = [
        attrs["href"] for tag, attrs in found if tag == "a" and "sort=-clean" in (attrs.get("href") or "")
    ]
    assert links == [address(sort="-clean") + "&" + address(WEAK).partition("?")[2]]


def test_an_empty_choice_adds_nothing_and_too_many_are_refused(api: httpx.Client, ids: list[str]) -> None:
    assert page(api, "/jobs?metrics=") == page(api, "/jobs")
    assert "metrics" in page(api, address(*(f"x{number}: top1" for number in range(7))), 422)
    assert cells(page(api, address("<b>: top1")), "&lt;b&gt;: top1") == [""] * 3
    page(api, address("x" * 301), 422)


def test_a_metric_that_no_job_has_is_named_with_the_nearest(api: httpx.Client, ids: list[str]) -> None:
    text = page(api, address("foo", f"{STRONG}x", STRONG))
    assert "No job here has <code>foo</code>." in text
    assert f"No job here has <code>{STRONG}x</code>; did you mean <code>{STRONG}</code>?" in text
    assert text.count("No job here has") == 2


def test_evaluations_of_other_tenants_are_not_read(app_store: Store, ids: list[str]) -> None:
    wanted = {(ids[1], 0), (ids[2], 1)}
    assert app_store.results.chosen(wanted).keys() == wanted
    assert TenantStore(app_store, View("other", everything=False)).results.chosen(wanted) == {}


def test_what_is_read_of_a_page_is_bounded(
    api: httpx.Client, ids: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metric_columns, "MAX_OFFERED", 1)
    assert "clean: top1" in page(api, "/jobs")
    assert STRONG not in page(api, "/jobs")
    monkeypatch.setattr(metric_columns, "MAX_TITLED", 1)
    assert cells(page(api, address(STRONG, sort="created")), STRONG) == [""] * 3
