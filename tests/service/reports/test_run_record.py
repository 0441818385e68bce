"""Jobs as runs of a tracker: legal names, the same ones while evaluations are missing."""

from __future__ import annotations

import re
from typing import Any

import pytest

from assay.service.contract.results import Results
from assay.service.reports.run_record import MAX_VALUE, flattened, run_metrics
from tests.support.result_rows import row

MLFLOW = re.compile(r"[\w\-. :/]{1,250}")
METRIC: dict[str, Any] = {
    "value": 0.5,
    "n": 10,
    "ci_low": 0.4,
    "ci_high": 0.6,
    "ci_method": "wilson",
    "higher_is_better": True,
}


def metrics(spec: dict[str, Any], *rows: dict[str, Any]) -> dict[str, float]:
    given = {"job": "x", "complete": True, "evaluations": rows, "provenance": None}
    return run_metrics({"data": {"name": "digits"}, **spec}, Results.model_validate(given))


BALLS = [
    {"epsilon": "2/255", "steps": 20},
    {"epsilon": "8/255", "steps": 20},
    {"epsilon": "8/255", "steps": 5},
]
SPEC = {
    "evaluations": [
        {"name": "clean", "params": {}, "data": None},
        *({"name": "a", "params": one} for one in BALLS),
    ]
}


def test_names_tell_rows_apart_and_do_not_change_as_rows_come() -> None:
    rows = [row("a", {"top1": METRIC}, params=one) for one in BALLS]
    every = metrics(SPEC, *rows)
    names = {"a_epsilon_2_255_steps_20", "a_epsilon_8_255_steps_20", "a_epsilon_8_255_steps_5"}
    assert {name.partition("/")[0] for name in every} == names
    for one in rows:
        assert metrics(SPEC, one).items() <= every.items()


def test_a_number_has_its_interval_and_n_as_far_as_they_are_known() -> None:
    exact = METRIC | {"value": 12.0, "ci_low": 12.0, "ci_high": 12.0, "ci_method": "exact"}
    few = METRIC | {"ci_low": None, "ci_high": None, "ci_method": "too_few"}
    none = few | {"value": None, "ci_method": "none"}
    found = metrics(SPEC, row("clean", {"top1": METRIC, "size": exact, "few": few, "none": none}))
    assert found == {
        "clean/top1": 0.5,
        "clean/top1_ci_low": 0.4,
        "clean/top1_ci_high": 0.6,
        "clean/top1_n": 10.0,
        "clean/size": 12.0,
        "clean/size_n": 10.0,
        "clean/few": 0.5,
        "clean/few_n": 10.0,
    }


@pytest.mark.parametrize("name", ["pkg:attack", "1st attack (ours)", "ä=ß%", "x" * 400])
def test_names_are_legal_in_both(name: str) -> None:
    part = {"corruption": "fog & smoke", "severity": 3, "metrics": {"top1": METRIC}}
    for found in metrics({}, row(name, {"top1": METRIC}, params={"epsilon": 0.5}, breakdown=[part])):
        assert MLFLOW.fullmatch(found), found
        assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_/]*", found), found


def test_rows_that_are_alike_have_names_of_their_own() -> None:
    found = metrics({}, row("a", {"top1": METRIC}), row("a", {"top1": METRIC | {"value": 0.25}}))
    assert (found["a/top1"], found["a_2/top1"]) == (0.5, 0.25)


def test_a_spec_is_flattened() -> None:
    spec = {
        "a": {"b c": [1, 2], "none": None, "flag": True},
        "list": [{"x": "8/255"}],
        "empty": [],
        "long": "y" * 7000,
    }
    found = flattened(spec)
    assert found == {"a.b_c": "[1, 2]", "a.flag": "true", "list.0.x": "8/255", "long": found["long"]}
    assert len(found["long"]) == MAX_VALUE
