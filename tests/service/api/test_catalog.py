from __future__ import annotations

from typing import get_args

import httpx

from assay.service.contract.warning_codes import WarningCode


def test_all_components_are_listed(api: httpx.Client) -> None:
    page = api.get("/api/v1/catalog").json()
    assert page["next_cursor"] is None
    assert {"pgd", "tiny_vit", "digits", "short", "clean"} <= {item["name"] for item in page["items"]}


def test_one_kind_is_listed(api: httpx.Client) -> None:
    items = api.get("/api/v1/catalog?kind=model").json()["items"]
    assert [item["name"] for item in items] == ["tiny_vit", "other_vit", "exported"]


def test_a_component_has_its_schema(api: httpx.Client) -> None:
    pgd = api.get("/api/v1/catalog/attack/pgd").json()
    assert pgd["schema"]["properties"]["steps"]["maximum"] == 1000
    assert pgd["passes"] == {"forward": "params.steps + 1", "backward": "params.steps"}


def test_unknown_components_name_the_nearest(api: httpx.Client) -> None:
    answer = api.get("/api/v1/catalog/model/tiny_vitt")
    assert answer.status_code == 404
    assert answer.json()["error"]["details"][0]["nearest"] == "tiny_vit"
    answer = api.get("/api/v1/catalog/modell/tiny_vit")
    assert answer.status_code == 404
    assert answer.json()["error"]["details"][0]["nearest"] == "model"


def test_components_of_a_task_are_listed(api: httpx.Client) -> None:
    found = api.get("/api/v1/catalog", params={"task": "classification", "kind": "data"}).json()["items"]
    assert "digits" in [one["name"] for one in found]
    assert all("classification" in one["tasks"] for one in found)
    answer = api.get("/api/v1/catalog", params={"task": "clasification"})
    assert answer.status_code == 422
    (detail,) = answer.json()["error"]["details"]
    assert (detail["loc"], detail["nearest"]) == (["query", "task"], "classification")


def test_unknown_kinds_are_422_in_the_filter(api: httpx.Client) -> None:
    answer = api.get("/api/v1/catalog?kind=modell")
    assert answer.status_code == 422
    assert answer.json()["error"]["details"][0]["nearest"] == "model"


def test_every_warning_is_explained(api: httpx.Client) -> None:
    page = api.get("/api/v1/warnings").json()
    found = {item["code"]: item for item in page["items"]}
    assert list(found) == list(get_args(WarningCode))
    assert found["subset"]["severity"] == "note"
    assert found["subset"]["where"] == ["submission", "row"]
    assert "`n` used of `available`" in found["subset"]["evidence"]
