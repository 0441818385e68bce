"""Entries of RobustBench's `model_info`: its fields, nothing invented, and what makes a number unreliable."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.contract.results import Job, Results
from assay.service.contract.threat import Knowledge, Threat
from assay.service.reports.robustbench import robustbench_entries, robustbench_paths

# Those of model_info/cifar10/Linf/*.json.
FIELDS = {
    *("link", "name", "authors", "additional_data", "number_forward_passes", "dataset", "venue"),
    *("architecture", "eps", "clean_acc", "reported", "autoattack_acc", "footnote", "unreliable"),
}
THREATS = {
    "ensemble": Threat(knowledge=Knowledge.WHITE_BOX, search="ensemble"),
    "steps": Threat(knowledge=Knowledge.WHITE_BOX, search="iterative"),
    "random": Threat(knowledge=Knowledge.NOISE),
}
JOB = "01jd3q0x5v8f7m2n9k4t6w1z0y"


def metric(value: float | None) -> dict[str, Any]:
    return {
        "value": value,
        "n": 10_000,
        "ci_low": value,
        "ci_high": value,
        "ci_method": "wilson",
        "higher_is_better": True,
    }


def row(name: str, value: float | None, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "params": {},
        "data": {"name": "cifar10", "params": {}},
        "protocol": "pixel",
        "backend": "native",
        "metrics": {"top1": metric(value)},
        "seconds": 1.0,
        "forward_passes": 1,
        "backward_passes": 0 if name == "plain" else 1,
    } | changes


def ball(
    name: str, value: float, epsilon: Any = "8/255", norm: str = "Linf", **params: Any
) -> dict[str, Any]:
    return row(name, value, params={"epsilon": epsilon, "norm": norm, **params})


STANDARD = ball("ensemble", 0.71284, version="standard", queries=5000)


def entries(*rows: dict[str, Any], name: str = "ours", complete: bool = True) -> list[dict[str, Any]]:
    results = {"job": JOB, "complete": complete, "evaluations": rows, "provenance": None}
    job = {
        "id": JOB,
        "kind": "evaluate",
        "name": name,
        "tags": [],
        "state": "succeeded",
        "attempt": 1,
        "created_at": "",
        "started_at": None,
        "finished_at": None,
        "progress": {"done": 0, "total": None, "unit": "examples", "eta_seconds": None},
        "queue_position": None,
        "workers_online": 0,
        "message": "",
        "error": None,
        "spec": {"model": {"name": "vit", "params": {}}, "seed": 3, "protocol": "pixel", "limit": None},
        "links": {"self": f"/api/v1/jobs/{JOB}", "results": "r", "events": "e", "artifacts": "a"},
    }
    return robustbench_entries(Job.model_validate(job), Results.model_validate(results), THREATS.get)


def test_an_entry_has_the_fields_of_model_info_and_invents_nothing() -> None:
    (entry,) = entries(row("plain", 0.9373), STANDARD, ball("steps", 0.73))
    extra = entry.pop("assay")
    assert entry == {
        **dict.fromkeys(FIELDS),
        "name": "ours",
        "dataset": "cifar10",
        "architecture": "vit",
        "eps": "8/255",
        "clean_acc": "93.73",
        "autoattack_acc": "71.28",
        "unreliable": False,
    }
    assert extra["standard"]["n"] == 10_000
    assert [one["evaluation"] for one in extra["attacks"]] == ["steps"]
    assert (extra["seed"], extra["spec"], extra["threat_model"]) == (3, f"/api/v1/jobs/{JOB}", "Linf")


@pytest.mark.parametrize(
    ("changed", "footnote"),
    [
        ({"warnings": [{"code": "subset", "message": "60 of 10000"}]}, "subset: 60 of 10000"),
        ({"warnings": [{"code": "zero_gradient", "message": "masked"}]}, "zero_gradient: masked"),
        ({"params": {**STANDARD["params"], "queries": 100}}, "Square with 100 queries, not 5000"),
        ({"protocol": "paper"}, "protocol paper, not pixel"),
    ],
)
def test_what_the_leaderboard_would_not_take_is_marked(changed: dict[str, Any], footnote: str) -> None:
    (entry,) = entries(STANDARD | changed)
    assert (entry["autoattack_acc"], entry["unreliable"], entry["footnote"]) == ("71.28", True, footnote)


def test_unfinished_results_are_marked_and_harmless_warnings_are_not() -> None:
    assert entries(STANDARD, complete=False)[0]["footnote"] == "the job has not finished"
    warnings = [{"code": "adaptive_attack_needed", "message": "x"}, {"code": "reduced_batch", "message": "y"}]
    assert entries(STANDARD | {"warnings": warnings})[0]["unreliable"] is False


@pytest.mark.parametrize(
    "other",
    [
        ball("ensemble", 0.7, version="rand"),
        ball("ensemble", 0.7, version="custom"),
        ball("ensemble", 0.7),
        ball("steps", 0.7),
    ],
)
def test_only_the_standard_version_is_autoattack(other: dict[str, Any]) -> None:
    (entry,) = entries(row("plain", 0.9), other)
    assert (entry["autoattack_acc"], entry["unreliable"]) == (None, None)
    assert "was not run" in entry["footnote"]
    assert entry["assay"]["attacks"][0]["value"] == 0.7


def test_a_clean_accuracy_of_a_subset_is_marked_too() -> None:
    subset = {"code": "subset", "severity": "note", "message": "8 of 120 examples", "evidence": {}}
    plain = row("plain", 0.95, warnings=[subset])
    (entry,) = entries(plain)
    assert (entry["unreliable"], entry["footnote"]) == (True, "subset: 8 of 120 examples")
    (entry,) = entries(plain, ball("steps", 0.4))
    assert entry["unreliable"]
    assert entry["footnote"].startswith("subset: 8 of 120 examples; AutoAttack (standard) was not run")
    assert entries(row("plain", 0.95), ball("steps", 0.4))[0]["unreliable"] is None


def test_each_ball_is_an_entry_and_a_file() -> None:
    found = entries(
        STANDARD,
        ball("steps", 0.8, epsilon=4 / 255),
        ball("ensemble", 0.6, epsilon=0.5, norm="L2", version="standard"),
        ball("random", 0.9),
        name="../../Ours: the best",
    )
    assert [(one["eps"], one["autoattack_acc"]) for one in found] == [
        ("8/255", "71.28"),
        ("4/255", None),
        ("0.5", "60.00"),
    ]
    assert robustbench_paths(found) == [
        "cifar10/Linf/Ours_the_best.json",
        "cifar10/Linf/Ours_the_best_4-255.json",
        "cifar10/L2/Ours_the_best.json",
    ]


def test_stored_corruptions_are_their_own_threat_model() -> None:
    cells = [
        {"corruption": f"c{kind}", "severity": severity, "metrics": {}}
        for kind in range(15)
        for severity in range(1, 6)
    ]
    stored = row(
        "corrupted",
        None,
        params={"source": "stored"},
        data={"name": "cifar10_c", "params": {"folder": "x"}},
        metrics={"corrupted_top1": metric(0.85)},
        breakdown=cells,
    )
    (entry,) = entries(row("plain", 0.95), stored)
    assert (entry["corruptions_acc"], entry["clean_acc"], entry["dataset"]) == ("85.00", "95.00", "cifar10")
    assert (entry["unreliable"], "autoattack_acc" in entry) == (False, False)
    (entry,) = entries(stored | {"breakdown": cells[:10]})
    assert (entry["unreliable"], entry["clean_acc"]) == (True, None)
    assert entry["footnote"] == "10 of 75 corruptions and severities"
    generated = stored | {"params": {"source": "generated"}}
    assert entries(generated) == []


def test_without_attack_there_is_the_clean_accuracy() -> None:
    (entry,) = entries(row("plain", 0.95), name="")
    assert (entry["clean_acc"], entry["eps"], entry["autoattack_acc"]) == ("95.00", None, None)
    assert robustbench_paths([entry]) == [f"cifar10/clean/{JOB}.json"]
