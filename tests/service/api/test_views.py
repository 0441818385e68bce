from __future__ import annotations

from typing import Any

import pytest

from assay.service.api.views import device_of, results_view
from assay.service.contract.states import JobState
from assay.service.store.rows import JobRow
from assay.service.store.transactions.pace import eta_seconds


def row(**changes: Any) -> JobRow:
    values: dict[str, Any] = {
        "id": "x",
        "kind": "evaluate",
        "name": "",
        "tags": [],
        "state": JobState.RUNNING,
        "attempt": 1,
        "priority": 5,
        "created_at": 0.0,
        "started_at": 100.0,
        "finished_at": None,
        "deadline": None,
        "spec": {"execution": {"device": "auto"}},
        "plan": None,
        "provenance": None,
        "message": "",
        "error": None,
        "progress_done": 25,
        "progress_total": 100,
        "progress_unit": "examples",
        "cost_done": 0.0,
        "cost_total": None,
        "model": "m",
    }
    return JobRow(**values | changes)


PACE = {"paced_at": 100.0, "cost_done": 25.0, "cost_total": 100.0}


def test_eta_from_the_cost() -> None:
    assert eta_seconds(row(**PACE), now=110.0) == 30.0


def test_eta_counts_only_what_this_attempt_did() -> None:
    assert eta_seconds(row(**PACE | {"paced_from": 20.0}), now=110.0) == 150.0


@pytest.mark.parametrize(
    "changes",
    [
        {"state": JobState.QUEUED},
        {"state": JobState.SUCCEEDED},
        {"paced_at": None},
        {"cost_done": 0.0},
        {"paced_from": 25.0},
        {"cost_total": None},
        {"cost_total": 0.0},
        {"cost_done": 101.0},
    ],
)
def test_eta_that_cannot_be_known(changes: dict[str, Any]) -> None:
    assert eta_seconds(row(**PACE | changes), now=110.0) is None


def test_eta_is_not_negative_when_clocks_differ() -> None:
    assert eta_seconds(row(**PACE), now=90.0) == 0.0


def test_the_plan_pins_the_device() -> None:
    assert device_of(row()) == "auto"
    assert device_of(row(plan={"device": "cuda"})) == "cuda"


def evaluation(*codes: str) -> dict[str, Any]:
    return {
        "name": "pgd",
        "params": {},
        "data": {"name": "digits", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": {},
        "warnings": [{"code": code, "message": f"{code} of all", "evidence": {}} for code in codes],
        "seconds": 1.0,
        "forward_passes": 1,
        "backward_passes": 1,
    }


def test_a_note_that_every_attack_has_is_one_of_the_job() -> None:
    spec = {"kind": "evaluate", "evaluations": [{"name": "pgd"}] * 3}
    stored = [evaluation("subset", "top5_upper_bound"), evaluation("subset"), evaluation("top5_upper_bound")]
    found = results_view(row(spec=spec), dict(enumerate(stored)), lambda name: None)
    assert [[one.code for one in part.warnings] for part in found.evaluations] == [["subset"], ["subset"], []]
    assert [(one.code, one.evidence) for one in found.warnings] == [
        ("top5_upper_bound", {"evaluations": [0, 2]})
    ]
