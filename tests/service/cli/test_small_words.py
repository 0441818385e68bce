"""Small words of the command line that were wrong."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.parameters import check
from assay.service.cli.config import _hidden
from assay.service.cli.job_progress import kept
from assay.service.cli.output import component_text
from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.fractions import radius_text
from assay.service.contract.problems import Problems
from assay.service.contract.results import Job
from assay.service.contract.states import JobState


def test_what_has_no_parameters_says_so() -> None:
    problems = Problems()
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    check(schema, {"foo": 1}, problems, noun="parameter")
    assert problems.details[0].allowed == "none: there are no parameters here"


@pytest.mark.parametrize(
    ("key", "shown"), [("x", "..."), ("secret", "..."), ("assay_0123456789abcdefghij", "...ghij")]
)
def test_a_short_key_is_masked_wholly(key: str, shown: str) -> None:
    assert _hidden("key", key) == shown


def test_a_default_radius_is_a_fraction() -> None:
    schema = {"properties": {"epsilon": {"type": "number", "default": 1 / 255}}}
    component = {"kind": "attack", "name": "pgd", "summary": "PGD.", "schema": schema, "rules": []}
    assert "1/255" in component_text(component)


@pytest.mark.costly
def test_a_study_of_another_media_type_is_a_documented_415(transport: Any) -> None:
    assert "415" in transport.app.openapi()["paths"]["/api/v1/studies"]["post"]["responses"]


def test_the_error_of_a_private_address_names_its_setting(transport: Any) -> None:
    client = AssayClient("http://127.0.0.1:8000", transport=transport)
    with pytest.raises(InvalidSpec) as caught:
        client.add_webhook("http://10.0.0.1/hook")
    assert "ASSAY_WEBHOOK_ALLOW" in str(caught.value.details[0].allowed)


@pytest.mark.parametrize(("value", "text"), [(1 / 255, "1/255"), (0.3, "0.3"), ("2/255", "2/255"), (2, "2")])
def test_a_radius_is_written_as_its_fraction(value: Any, text: str) -> None:
    assert radius_text(value) == text


def test_the_progress_of_a_job_that_is_canceled_does_not_fall(transport: Any, train_body: Any) -> None:
    job = AssayClient("http://127.0.0.1:8000", transport=transport).submit(train_body())

    def at(state: str, done: int, share: float) -> Job:
        progress = job.progress.model_copy(update={"done": done, "total": 1050, "share": share})
        return job.model_copy(update={"state": JobState(state), "progress": progress})

    running = at("running", 847, 0.42)
    for state in ("canceling", "canceled", "failed", "timed_out"):
        assert kept(running, at(state, 700, 0.0)) == at(state, 847, 0.42)
    queued_again = at("queued", 700, 0.0)
    assert kept(running, queued_again) == queued_again
