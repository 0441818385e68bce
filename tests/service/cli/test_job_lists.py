from __future__ import annotations

import json
from typing import Any

import pytest

from assay.service.cli import job_lists
from assay.service.contract.errors import InvalidSpec, MalformedJson
from assay.service.contract.problems import path_text

TRAIN = {"kind": "train", "name": "tiny", "model": {"name": "vit"}}
ATTACK = {"kind": "evaluate", "name": "attacked", "model": {"name": "vit", "weights": {"job": "@tiny"}}}


def read(*jobs: Any, **others: Any) -> list[dict[str, Any]]:
    return job_lists.read(json.dumps({"jobs": list(jobs), **others}).encode())


def test_defaults_of_a_kind_fill_in_what_a_job_leaves_out() -> None:
    jobs = read(TRAIN, ATTACK, defaults={"train": {"seed": 3, "name": "x"}, "evaluate": {"limit": 5}})
    assert jobs == [{**TRAIN, "seed": 3}, {**ATTACK, "limit": 5}]


def test_names_become_ids_wherever_a_job_is_named() -> None:
    transfer = {"name": "transfer", "params": {"job": "@tiny", "steps": 3}}
    spec = {**ATTACK, "evaluations": [transfer, {"name": "clean", "params": {"note": "@tiny"}}]}
    done = job_lists.resolved(read(TRAIN, spec)[1], {"tiny": "01abc"})
    assert done["model"]["weights"] == {"job": "01abc"}
    assert done["evaluations"][0]["params"] == {"job": "01abc", "steps": 3}
    assert done["evaluations"][1] == spec["evaluations"][1], "only a field called job names one"


def test_names_in_a_list_of_jobs_become_ids_too() -> None:
    attack = {"name": "transfer", "params": {"job": "@tiny", "others": ["@other", "01xyz"]}}
    spec = {"name": "attacked", "kind": "evaluate", "evaluations": [attack]}
    names = {"tiny": "01abc", "other": "01def"}
    (done,) = job_lists.resolved([spec], names)
    assert done["evaluations"][0]["params"] == {"job": "01abc", "others": ["01def", "01xyz"]}
    trained = [TRAIN, {**TRAIN, "name": "other"}]
    assert job_lists.referred(read(*trained, spec)) == {"tiny", "other"}
    attack["params"]["others"] = ["@othr"]  # type: ignore[index]
    with pytest.raises(InvalidSpec) as caught:
        read(*trained, spec)
    (problem,) = caught.value.envelope().error.details
    assert problem.nearest == "@other"
    assert "others" in str(problem.loc)


def test_an_id_stays_an_id() -> None:
    spec = {**ATTACK, "model": {"name": "vit", "weights": {"job": "01jd3q0x5v8f7m2n9k4t6w1z0y"}}}
    (job,) = read(spec)
    assert job_lists.resolved(job, {}) == spec


def test_what_others_refer_to_is_known() -> None:
    assert job_lists.referred(read(TRAIN, ATTACK)) == {"tiny"}


@pytest.mark.parametrize(
    ("body", "place", "reason"),
    [
        ([], "body", "must be"),
        ({}, "jobs", "is required"),
        ({"jobs": []}, "jobs", "must be"),
        ({"jobs": [1]}, "jobs[0]", "must be"),
        ({"jobs": [TRAIN], "default": {}}, "default", "unknown field"),
        ({"jobs": [TRAIN], "defaults": {"trains": {}}}, "defaults.trains", "unknown field"),
        ({"jobs": [{"kind": "train"}]}, "jobs[0].name", "needs a name"),
        ({"jobs": [TRAIN, TRAIN]}, "jobs[1].name", "has this name"),
        ({"jobs": [ATTACK, TRAIN]}, "jobs[0].model.weights.job", "earlier jobs of the list only"),
        ({"jobs": [{**ATTACK, "name": "tiny"}]}, "jobs[0].model.weights.job", "earlier jobs"),
        ({"jobs": [{**TRAIN, "name": "tinny"}, ATTACK]}, "jobs[1].model.weights.job", "no job of the list"),
    ],
)
def test_a_bad_list_is_refused_with_the_place(body: Any, place: str, reason: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_lists.read(json.dumps(body).encode())
    (detail,) = caught.value.details
    assert path_text(detail.loc) == place
    assert reason in detail.message


def test_the_nearest_name_is_offered() -> None:
    with pytest.raises(InvalidSpec) as caught:
        read({**TRAIN, "name": "tinny"}, ATTACK)
    (detail,) = caught.value.details
    assert (detail.given, detail.nearest, detail.allowed) == ("@tiny", "@tinny", ["@tinny"])


def test_every_wrong_place_is_named_at_once() -> None:
    with pytest.raises(InvalidSpec) as caught:
        read({"kind": "train"}, {**ATTACK, "name": "a"}, {**ATTACK, "name": "a"})
    assert [path_text(detail.loc) for detail in caught.value.details] == [
        "jobs[0].name", "jobs[1].model.weights.job", "jobs[2].name", "jobs[2].model.weights.job",
    ]  # fmt: skip


@pytest.mark.parametrize("text", [b"{", b'{"jobs": [NaN]}', b'{"jobs": 1, "jobs": 2}', b"\xff"])
def test_what_is_no_json_is_said(text: bytes) -> None:
    with pytest.raises(MalformedJson):
        job_lists.read(text)


def test_one_job_is_no_list_and_is_submitted() -> None:
    with pytest.raises(InvalidSpec) as caught:
        job_lists.read(json.dumps(TRAIN).encode(), "a.yaml")
    (detail,) = caught.value.details
    assert detail.message == "is one job, not a list of jobs"
    assert "`assay submit a.yaml` takes it" in detail.allowed


def test_a_misspelt_name_is_found() -> None:
    job = {"kind": "train", "model": {"name": "vit"}, "data": {"name": "digits"}, "nam": "a"}
    with pytest.raises(InvalidSpec, match="every job of a list needs a name; 'nam' is no field"):
        job_lists.read(json.dumps({"jobs": [job]}).encode())
