"""The jobs of a study, and which trainings are one."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.studies.runs import (
    configuration_of,
    job_count,
    planned_runs,
    training_key,
    with_weights,
)
from assay.service.studies.wire import OWN_TRAINING
from tests.support.study_specs import check, example


def test_its_jobs_differ_in_seed_and_name_alone() -> None:
    valid = check(example() | {"seeds": [4, 7]})
    runs = list(planned_runs(valid.templates, [4, 7], "mine"))
    assert [(run.arm, run.seed) for run in runs] == [(0, 4), (1, 4), (0, 7), (1, 7)]
    first, later = runs[0].train, runs[2].train
    assert first is not None
    assert later is not None
    assert {name for name in first if first[name] != later[name]} == {"seed", "name"}  # type: ignore[literal-required]
    assert (first["name"], runs[0].evaluate["name"]) == (
        "mine: softmax, seed 4, training",
        "mine: softmax, seed 4",
    )
    assert runs[0].evaluate["model"]["weights"] == {"job": OWN_TRAINING}
    assert with_weights(runs[0].evaluate, "x")["model"]["weights"] == {"job": "x"}
    assert len({run.key for run in runs}) == 4
    assert training_key(None) == ""
    assert job_count([True, False], 3) == 9


@pytest.mark.parametrize(
    ("field", "value", "same"),
    [
        ("seed", 7, False),
        ("execution", {"dtype": "bfloat16"}, False),
        ("model", {"name": "vit"}, False),
        ("data", {"name": "shapes"}, False),
        ("recipe", {"name": "small_vit", "params": {"epochs": 1}}, False),
        ("name", "another", True),
        ("tags", ["another"], True),
        ("priority", 9, True),
    ],
)
def test_trainings_share_weights_where_all_that_decides_them_is_equal(
    field: str, value: object, same: bool
) -> None:
    train: Any = check(example()).templates[0]["train"]
    assert train[field] != value
    assert (training_key({**train, field: value}) == training_key(train)) is same


def test_arms_that_differ_in_name_alone_have_one_configuration() -> None:
    body = example() | {"baseline": None}
    body["arms"] = [body["arms"][0], body["arms"][0] | {"name": "twin"}, body["arms"][1]]
    first, twin, other = map(configuration_of, check(body).templates)
    assert first == twin != other
