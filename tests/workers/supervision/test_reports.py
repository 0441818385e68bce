"""A line of an evaluator becomes a typed value, or the fault of its job."""

from __future__ import annotations

import json
from typing import Any

import pytest

from assay.service.submission import plan_faults
from assay.workers.supervision import reports
from assay.workers.supervision.report_bounds import BASE_BYTES, MAX_HELD_OUT, bounds_of
from assay.workers.supervision.reports import AllowedReports, BadReport
from tests.support.jobs import evaluate_spec, train_spec
from tests.support.workers import CLEAN

FACTS = {
    "device": "cpu",
    "batch_size": 5,
    "untrained": False,
    "weights_sha256": "w",
    "data_sha256": {"digits": "d"},
    "evaluations": [{"n": 10, "available": 10}],
}
PLAN = {
    **FACTS,
    "shards": [
        {"evaluation": 0, "number": 0, "start": 0, "stop": 5, "cost": 1.0},
        {"evaluation": 0, "number": 1, "start": 5, "stop": 10, "cost": 1.0},
    ],
}
TRAINING = {"type": "progress", "done": 1, "total": 5, "message": "epoch 1/1"}
GPU = {"name": "H200", "total": 10, "used": 4, "reserved": 3, "busy": 0.5}
COLUMNS = {
    "id": ["a", "b"],
    "label": [1, 2],
    "prediction": [1, 1],
    "correct": [True, False],
    "correct5": [True, True],
    "clean_correct": [True, True],
    "loss": [0.5, float("nan")],
    "forward": [1, 1],
    "backward": [0, 0],
}
PROVENANCE = {"code": {"version": "0"}, "packages": {}, "device": {"type": "cpu"}}
EXTRA = {"attack": False, "evidence": {}, "provenance": PROVENANCE}
OUTCOME = {
    "type": "outcome",
    "n": 2,
    "columns": COLUMNS,
    "seconds": 0.25,
    "forward_passes": 2,
    "backward_passes": 0,
    "extra": EXTRA,
}
FILE = {"name": "a.csv", "path": "/anywhere", "size": -1, "sha256": "", "media_type": "text/html"}


def allowed(kind: str) -> AllowedReports:
    spec = train_spec() if kind == "train" else evaluate_spec() | {"evaluations": [CLEAN]}
    plan = FACTS if kind == "evaluate" else None
    request: Any = {"kind": kind, "spec": spec, "plan": plan, "evaluation": 0, "start": 3, "stop": 5}
    return AllowedReports.of(request)


def report(kind: str, message: Any) -> Any:
    return allowed(kind).report(json.dumps(message).encode())


def refused(kind: str, message: Any) -> str:
    with pytest.raises(BadReport) as caught:
        report(kind, message)
    return str(caught.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("plan", {"type": "plan", "plan": PLAN}),
        ("evaluate", {"type": "progress", "done": 1, "total": 5, "message": "pgd"}),
        ("train", {"type": "checkpoint", "step": 3}),
        ("train", TRAINING | {"examples_per_second": 12.5, "gpu": GPU}),
        ("check", {"type": "checked", "verdict": {"missing": ["a"]}, "error": None}),
        ("hash", {"type": "hashed", "data_sha256": {"digits": "0" * 64}}),
        ("evaluate", {"type": "error", "error_type": "x_y1", "message": "m", "retry": False}),
        ("evaluate", OUTCOME | {"extra": EXTRA | {"evidence": {"refused": {}}, "analysis": "clean"}}),
        ("train", OUTCOME | {"extra": EXTRA | {"plan": FACTS}}),
        (
            "evaluate",
            OUTCOME
            | {
                "extra": EXTRA
                | {"artifacts": [FILE], "gallery": FILE | {"name": "gallery-000-pgd-00000003.json"}}
            },
        ),
        (
            "evaluate",
            OUTCOME | {"extra": EXTRA | {"evidence": {"layers": [1, {"a": 2}], "unknown_words": 3}}},
        ),
    ],
)
def test_what_a_request_allows(kind: str, message: Any) -> None:
    found = report(kind, message)
    assert found["type"] == message["type"]
    assert json.dumps(found) == json.dumps(message)


@pytest.mark.parametrize(
    ("kind", "message", "said"),
    [
        ("plan", {"type": "outcome"}, "of type 'outcome' to plan; allowed: progress, plan, error"),
        ("evaluate", {"type": "checkpoint", "step": 1}, "allowed: progress, outcome, error"),
        ("train", TRAINING | {"gpu": GPU | {"busy": 1.5}}, "busy: 1.5; allowed: finite numbers from 0 to 1"),
        ("train", TRAINING | {"gpu": GPU | {"busy": "x"}}, "gpu.busy: 'x' is not of float"),
        ("train", TRAINING | {"examples_per_second": -1.0}, "examples_per_second: -1.0; allowed: finite"),
        ("train", TRAINING | {"examples_per_second": 1e300}, "allowed: finite numbers from 0 to 1e+09"),
        ("evaluate", [1], "not a report"),
        ("evaluate", {"type": ["progress"]}, "not a report"),
        (
            "evaluate",
            {"type": "progress", "done": -1, "total": 5, "message": ""},
            "done: -1; allowed: 0 or more",
        ),
        ("evaluate", {"type": "progress", "done": 1.5, "total": 5, "message": ""}, "done: 1.5 is not of int"),
        ("evaluate", {"type": "progress", "done": 1, "total": 2}, "lacks message"),
        ("evaluate", {"type": "progress", "done": 1, "total": 2, "message": "", "x": 1}, "'x' is unknown"),
        (
            "evaluate",
            {"type": "error", "error_type": "A\r\n", "message": "", "retry": True},
            "error_type: 'A",
        ),
        ("hash", {"type": "hashed", "data_sha256": {"digits": "a b"}}, "digits: 'a b'"),
    ],
)
def test_what_no_request_allows(kind: str, message: Any, said: str) -> None:
    assert said in refused(kind, message)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"n": 3}, "measured 3 examples, the shard has 2"),
        ({"columns": {**COLUMNS, "loss": [0.5]}}, "the column 'loss' has 1 values, the shard has 2 examples"),
        ({"columns": {**COLUMNS, "loss": [0.5, {"a": 1}]}}, "the column 'loss' has an object for a value"),
        ({"columns": {**COLUMNS, "loss": [0.5, [[1]]]}}, "the column 'loss' has a list for a value"),
        ({"columns": {**COLUMNS, "id": ["a", "a"]}}, "an example was measured twice"),
        ({"columns": {**COLUMNS, "id": ["a", 1]}}, "has values that are no texts"),
        ({"columns": {**COLUMNS, "a\r": [1, 2]}}, "columns; allowed: 9"),
        ({"columns": {k: v for k, v in COLUMNS.items() if k != "label"}}, "a shard has no column 'label'"),
        ({"seconds": float("inf")}, "seconds: inf; allowed: finite"),
        ({"forward_passes": 2**63}, "an integer of more than 64 bits"),
        ({"extra": {**EXTRA, "artifacts": [{**FILE, "name": "../a"}]}}, "a file has the name '../a'"),
        *(
            ({"extra": {**EXTRA, "artifacts": [{**FILE, "name": name}]}}, f"a file has the name '{name}'")
            for name in ("plot-000-pgd.svg", "plot-curve.vl.json", "plot-curve.svg", "outcomes-000-pgd.csv")
        ),
        ({"extra": {**EXTRA, "artifacts": [FILE, FILE]}}, "names 2 files"),
        ({"extra": {**EXTRA, "plan": FACTS}}, "a training has one, and no other shard"),
        ({"extra": {**EXTRA, "protocol": "own"}}, "extra.protocol: 'own' is not of"),
        ({"extra": {**EXTRA, "evidence": {"words": "x"}}}, "extra.evidence.words: 'x' is not of int"),
        ({"extra": {**EXTRA, "evidence": [1], "analysis": "clean"}}, "facts: a list is not of"),
        ({"extra": {**EXTRA, "evidence": {"a": "\0"}, "analysis": "clean"}}, "facts.a: a text with NUL"),
    ],
)
def test_outcomes_are_held_to_their_shard(changes: dict[str, Any], said: str) -> None:
    assert said in refused("evaluate", OUTCOME | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shards": PLAN["shards"][:1]}, "its shards have 5 examples, the evaluation 10"),
        ({"shards": [*PLAN["shards"], PLAN["shards"][1]]}, "have not each a number of their own"),
        ({"shards": [{**PLAN["shards"][0], "start": -5}, PLAN["shards"][1]]}, "do not follow each other"),
        ({"shards": [{**PLAN["shards"][0], "cost": float("nan")}, PLAN["shards"][1]]}, "cost: nan"),
        ({"shards": [*PLAN["shards"], {**PLAN["shards"][0], "evaluation": 7}]}, "is of no evaluation"),
        (
            {"evaluations": [*FACTS["evaluations"], {"n": 1, "available": 1}]},
            "plans 2 evaluations, the job has 1",
        ),
        ({"device": "tpu"}, "device: 'tpu', where the job asks for"),
        ({"estimated_seconds": 1e300}, "estimated_seconds: 1e+300; allowed"),
        ({"batch_size": 0}, "batch_size: 0"),
        ({"data_sha256": {"digits": "<b>"}}, "digits: '<b>'"),
    ],
)
def test_plans_are_held_to_their_job(changes: dict[str, Any], said: str) -> None:
    assert said in refused("plan", {"type": "plan", "plan": PLAN | changes})


CHOICE = {"chosen": True, "seconds": 1.0, "ratio": 0.5, "refused": None}


def chosen_by_plan(**changes: Any) -> Any:
    """What becomes of a choice of compiled passes where the job leaves the choice to its plan."""
    execution = {"device": "cpu", "dtype": "float32", "batch_size": "auto", "compile": "auto"}
    spec = evaluate_spec(execution=execution) | {"evaluations": [CLEAN]}
    found: Any = {"kind": "plan", "spec": spec, "plan": None, "evaluation": 0, "start": 0, "stop": 0}
    message = {"type": "plan", "plan": PLAN | {"compile": CHOICE | changes}}
    told: Any = AllowedReports.of(found).report(json.dumps(message).encode())
    return told["plan"]["compile"]


def test_a_plan_chooses_compiled_passes_only_where_its_job_lets_it() -> None:
    message = {"type": "plan", "plan": PLAN | {"compile": CHOICE}}
    assert "compile: the job leaves no choice" in refused("plan", message)
    assert chosen_by_plan() == CHOICE
    trained = OUTCOME | {"extra": EXTRA | {"plan": FACTS | {"compile": CHOICE}}}
    assert "compile: the job leaves no choice" in refused("train", trained), "nor does a training"
    for changes in ({"seconds": float("nan")}, {"ratio": float("-inf")}, {"seconds": -1.0}):
        with pytest.raises(BadReport, match="allowed: finite numbers"):
            chosen_by_plan(**changes)
    assert chosen_by_plan(refused="\x1b\u202e" + "x" * 3_000)["refused"].startswith("\\x1b\\u202exx")
    assert len(chosen_by_plan(refused="x" * 3_000)["refused"]) == plan_faults.MAX_REASON


def test_texts_for_people_are_cut_and_escaped() -> None:
    text = "a\r\x1b[2J\u202e\ud800\0b\n\tc" + "x" * 20_000
    message = {"type": "error", "error_type": "told", "message": text, "retry": True, "traceback": text}
    found = report("evaluate", message)
    assert found["message"].startswith("a\\r\\x1b[2J\\u202e\\ud800\\x00b\n\tc")
    assert len(found["message"]) < reports.MAX_ERROR_TEXT + 50
    assert "traceback" not in found
    found = report("evaluate", {"type": "progress", "done": 1, "total": 2, "message": text})
    assert len(found["message"]) < reports.MAX_PROGRESS_TEXT + 50


def test_the_message_of_a_fault_is_short_and_without_control_characters() -> None:
    said = refused("evaluate", {"type": "x\x1b[2J" * 100_000})
    assert len(said) < 500
    said = refused(
        "evaluate", {"type": "progress", "done": 1, "total": 2, "message": "", "k\r\n" * 10_000: 1}
    )
    assert len(said) < 500
    assert said.isprintable()


def test_bounds_follow_the_plan() -> None:
    small, large = bounds_of("evaluate", 10, 9), bounds_of("evaluate", 50_000, 9)
    assert small.size == BASE_BYTES + 10 * (128 + 9 * 32)
    assert large.size - BASE_BYTES == 5_000 * (small.size - BASE_BYTES)
    assert bounds_of("evaluate", 100, 6, 150).containers > 100 * 6
    assert allowed("train").bounds == bounds_of("train", MAX_HELD_OUT, 9)
    assert allowed("evaluate").bounds == bounds_of("evaluate", 2, 9)
    with pytest.raises(BadReport, match="bytes or more; allowed: 16,778,048 by its plan"):
        allowed("evaluate").report(b" " * (small.size + 1))


@pytest.mark.parametrize("kind", ["evaluate", "train"])
def test_without_the_table_of_a_package_columns_are_bounded_all_the_same(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports.catalog, "outcome_table", lambda *a: 1 / 0)
    assert allowed(kind).table is None
    many = {f"c{number}": [1, 2] for number in range(65)}
    extra = EXTRA | ({"plan": FACTS} if kind == "train" else {})
    assert "it has 65 columns; allowed: 64" in refused(kind, OUTCOME | {"columns": many, "extra": extra})
