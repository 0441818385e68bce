from __future__ import annotations

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import Warning
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
