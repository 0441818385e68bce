"""Small words of the command line that were wrong."""

from __future__ import annotations

import pytest

from assay.service.catalog.parameters import check
from assay.service.cli.config import _hidden
from assay.service.cli.output import component_text
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
