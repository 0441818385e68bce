"""Small words of the command line that were wrong."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.parameters import check
from assay.service.cli.config import _hidden
from assay.service.cli.output import component_text
from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.problems import Problems


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


def test_a_study_of_another_media_type_is_a_documented_415(transport: Any) -> None:
    assert "415" in transport.app.openapi()["paths"]["/api/v1/studies"]["post"]["responses"]


def test_the_error_of_a_private_address_names_its_setting(transport: Any) -> None:
    client = AssayClient("http://127.0.0.1:8000", transport=transport)
    with pytest.raises(InvalidSpec) as caught:
        client.add_webhook("http://10.0.0.1/hook")
    assert "ASSAY_WEBHOOK_ALLOW" in str(caught.value.details[0].allowed)
