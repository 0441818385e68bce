from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, PartBreakdown, Warning
from assay.service.contract.specs import Protocol
from assay.service.contract.warning_codes import SEVERITIES, SEVERITY

IMAGES = {"classification", "segmentation", "anomaly_detection", "stored_corruptions"}


def row_protocol(protocol: Protocol, task: str) -> str:
    return load().task(task).row_protocol(protocol)


@pytest.mark.parametrize("task", [*sorted(IMAGES), "a task that the catalog lacks"])
def test_rows_of_images_state_the_protocol_of_the_run(task: str) -> None:
    assert (row_protocol("pixel", task), row_protocol("paper", task)) == ("pixel", "paper")


@pytest.mark.parametrize("task", ["language", "sequence", "control"])
def test_rows_that_have_one_protocol_state_their_task(task: str) -> None:
    assert row_protocol("pixel", task) == row_protocol("paper", task) == task


@pytest.mark.parametrize("task", ["series", "series_regression"])
def test_attacks_on_series_keep_the_two_protocols_apart(task: str) -> None:
    assert (row_protocol("pixel", task), row_protocol("paper", task)) == ("series", "paper")


def test_a_warning_has_the_severity_of_its_code_also_where_an_earlier_version_stored_none() -> None:
    stored = {"code": "leaks_future", "message": "m", "evidence": {}}
    assert Warning.model_validate(stored).severity == "invalid"
    assert Warning(code="subset", message="m").severity == "note"
    assert Warning(code="zero_gradient", severity="invalid", message="m").severity == "invalid"
    assert Warning(code="zero_gradient", message="m").severity == "caution"
    assert set(SEVERITY.values()) == set(SEVERITIES)


STORED_PARTS = [
    ({"corruption": "fog", "severity": 3}, "fog/3"),
    ({"corruption": None, "severity": None}, "mean"),
    (
        {"stage": "fab", "n": 4, "broken": 1, "forward_passes": 8, "backward_passes": 8, "seconds": 0.5},
        "fab",
    ),
    ({"layer": 2}, "layer 2"),
    ({"layer": None, "values": "permuted"}, "permuted"),
    ({"layer": 0, "iteration": 1, "arm": None, "planted": "noise"}, "noise/layer 0/iteration 1"),
    ({"sigma": 0.25, "radius": None}, "sigma 0.25"),
    ({"norm": "L2", "epsilon": 0.5}, "L2 0.5"),
    ({"label": "class 3", "keys": {"class": 3}}, "class 3"),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "label"), STORED_PARTS, ids=str)
def test_a_stored_part_of_any_form_is_read_and_written_as_it_was(
    stored: dict[str, object], label: str
) -> None:
    metric = {
        "value": 0.5, "n": 2, "ci_low": 0.1, "ci_high": 0.9, "ci_method": "wilson",
        "higher_is_better": True, "unit": "proportion",
    }  # fmt: skip
    part = {**stored, "metrics": {"top1": metric}}
    row = {
        "name": "x", "params": {}, "data": {}, "protocol": "pixel", "backend": "native", "metrics": {},
        "breakdown": [part],
        "seconds": 0.0, "forward_passes": 0, "backward_passes": 0,
    }  # fmt: skip
    result = EvaluationResult.model_validate(row)
    assert [read.label for read in result.breakdown] == [label]
    assert result.model_dump(mode="json", exclude_unset=True)["breakdown"] == [part]


def test_the_facts_that_make_a_part_come_back_as_they_are_and_are_finite() -> None:
    keys = {"class": 3, "right": True, "severity": 1.0, "name": "a", "seed": None}
    part = PartBreakdown(label="", keys=keys, metrics={})
    read = PartBreakdown.model_validate(json.loads(part.model_dump_json()))
    assert [(type(value), value) for value in read.keys.values()] == [
        (type(value), value) for value in keys.values()
    ]
    with pytest.raises(ValidationError, match="finite"):
        PartBreakdown(label="", keys={"severity": float("nan")}, metrics={})
