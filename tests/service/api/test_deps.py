"""Query parameters that a route's signature does not have are refused, on every route."""

from __future__ import annotations

from typing import Annotated, Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Query
from fastapi.testclient import TestClient

from assay.service.api import errors
from assay.service.api.deps import StrictRoute, Version
from assay.service.api.routes import ROUTERS
from assay.service.dashboard.routes import ROUTERS as PAGES

router = APIRouter(route_class=StrictRoute)


def _chosen(tag: str = "") -> str:
    return tag


@router.get("/rows/{row}")
def rows(
    row: int,
    tag: Annotated[str, Depends(_chosen)],
    limit: int = 5,
    source: Annotated[str, Query(alias="from")] = "",
    job: Annotated[list[str] | None, Query()] = None,
    v: Version = "",
) -> dict[str, Any]:
    """What is asked for."""
    return {"row": row, "tag": tag, "limit": limit, "from": source, "job": job, "v": v}


@pytest.fixture
def client() -> TestClient:
    app = FastAPI()
    errors.install(app)
    app.include_router(router, prefix="/below")
    return TestClient(app)


def refusals(client: TestClient, query: str) -> list[dict[str, Any]]:
    answer = client.get(f"/below/rows/3?{query}")
    assert answer.status_code == 422
    details: list[dict[str, Any]] = answer.json()["error"]["details"]
    return details


def test_parameters_of_the_function_and_its_dependencies_are_taken(client: TestClient) -> None:
    answer = client.get("/below/rows/3?tag=a&limit=2&from=x&job=1&job=2&v=9")
    assert answer.json() == {"row": 3, "tag": "a", "limit": 2, "from": "x", "job": ["1", "2"], "v": "9"}


@pytest.mark.parametrize(("given", "nearest"), [("limits", "limit"), ("tags", "tag"), ("jobs", "job")])
def test_others_are_refused_with_the_nearest_name(client: TestClient, given: str, nearest: str) -> None:
    (detail,) = refusals(client, f"{given}=2")
    assert detail == {
        "loc": ["query", given],
        "message": "unknown parameter",
        "given": "2",
        "allowed": ["tag", "limit", "from", "job", "v"],
        "nearest": nearest,
    }


def test_one_value_may_not_silently_win(client: TestClient) -> None:
    details = refusals(client, "limit=1&limit=2&source=b&source=c")
    assert [(one["loc"][-1], one["message"], one["given"]) for one in details] == [
        ("limit", "is given more than once", ["1", "2"]),
        ("source", "unknown parameter", "c"),
    ]


def test_parameters_hidden_from_the_schema_are_known(client: TestClient) -> None:
    parameters = client.get("/openapi.json").json()["paths"]["/below/rows/{row}"]["get"]["parameters"]
    assert {one["name"] for one in parameters} == {"row", "tag", "limit", "from", "job"}


def test_every_route_is_strict() -> None:
    routes = [route for router in (*ROUTERS, *PAGES) for route in router.routes]
    assert len(routes) > 90
    assert [route for route in routes if not isinstance(route, StrictRoute)] == []


def test_names_and_values_of_a_query_are_told_at_once(api: httpx.Client) -> None:
    found = api.get("/api/v1/jobs?limit=abc&foo=1&sort=no&sort=name").json()["error"]["details"]
    assert [detail["loc"][1] for detail in found] == ["foo", "sort", "limit"]
    assert [detail["given"] for detail in found[::2]] == ["1", "abc"]
