"""Fleets over HTTP, for administrators."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from assay.service.store.store import Store
from tests.support.jobs import add, evaluate_spec, planned
from tests.support.pages import PAGE

FLEETS = "/api/v1/workers/fleets"
REPORT = {"engine": "Slurm", "device": "cpu", "most": 64, "running": 3, "pending": 2, "reason": "Priority"}


def test_a_report_is_answered_with_the_work_and_listed(api: httpx.Client, app_store: Store) -> None:
    assert api.get(FLEETS).json() == {"items": [], "next_cursor": None}
    planned(app_store, 5)
    add(app_store, evaluate_spec(device="cuda"))
    answer = api.put(f"{FLEETS}/a100", json=REPORT)
    assert answer.status_code == 200
    status = answer.json()
    assert status.pop("last_report").endswith("Z")
    assert status == {
        **REPORT, "name": "a100", "devices": 1, "online": True, "ended": False, "names": [], "queued": 5,
        "busy": 0, "withheld": 0, "identity": "", "refused": "",
    }  # fmt: skip
    api.put(f"{FLEETS}/a100", json={**REPORT, "running": 4, "pending": 0, "reason": ""})
    (item,) = api.get(FLEETS).json()["items"]
    assert (item["running"], item["pending"], item["reason"]) == (4, 0, "")


@pytest.mark.parametrize(
    ("change", "loc"),
    [
        ({"device": "tpu"}, "device"),
        ({"pending": -1}, "pending"),
        ({"running": 10**9}, "running"),
        ({"most": 0}, "most"),
        ({"reason": "a\nb"}, "reason"),
        ({"engine": ""}, "engine"),
        ({"more": 1}, "more"),
    ],
)
def test_a_wrong_report_is_refused(api: httpx.Client, change: dict[str, Any], loc: str) -> None:
    answer = api.put(f"{FLEETS}/a100", json={**REPORT, **change})
    assert answer.status_code == 422
    assert [detail["loc"][-1] for detail in answer.json()["error"]["details"]] == [loc]


def test_a_name_is_short_and_plain(api: httpx.Client) -> None:
    for name in ("A", "a.b", "x" * 41, "a_b"):
        assert api.put(f"{FLEETS}/{name}", json=REPORT).status_code == 422


def test_administrators_see_fleets_on_the_page_of_workers(api: httpx.Client) -> None:
    assert "Fleets" not in api.get("/workers", headers=PAGE).text
    api.put(f"{FLEETS}/a100", json=REPORT)
    text = api.get("/workers", headers=PAGE).text
    assert '<th scope="row" data-label="Fleet">a100</th>' in text
    assert '<td data-label="Waits for">Priority</td>' in text
