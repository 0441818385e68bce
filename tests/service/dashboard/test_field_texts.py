"""Texts of form fields are read back as the values that they show."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.dashboard.field_texts import ABSENT, from_text, to_text

INTEGER = {"type": "integer"}


NUMBER = {"type": "number"}


FRACTION = {"type": ["number", "string"], "fraction": True}


NULLABLE = {"anyOf": [NUMBER, {"type": "null"}]}


LAYERS = {"anyOf": [{"enum": ["all", "first"]}, {"type": "array", "items": INTEGER}]}


TEXTS = {"type": "array", "items": {"type": "string"}}


VALUES: list[tuple[dict[str, Any], str, Any]] = [
    (INTEGER, " 12 ", 12),
    (INTEGER, "-3", -3),
    (INTEGER, "4.5", "4.5"),
    (INTEGER, "9" * 5000, "9" * 5000),
    (NUMBER, "1e-05", 1e-05),
    (NUMBER, "3", 3),
    (NUMBER, "1e999", "1e999"),
    (NUMBER, "nan", "nan"),
    (NUMBER, "\u0663", "\u0663"),
    (FRACTION, "8/255", "8/255"),
    (FRACTION, "0.1", 0.1),
    (NULLABLE, "null", None),
    (NULLABLE, "None", None),
    (NULLABLE, "0.5", 0.5),
    ({"type": "boolean"}, "true", True),
    ({"type": "boolean"}, "yes", "yes"),
    ({"enum": [-1, 1]}, "-1", -1),
    ({"enum": [True]}, "true", True),
    (LAYERS, "all", "all"),
    (LAYERS, "0, 2", [0, 2]),
    (LAYERS, "alll", "alll"),
    (LAYERS, "[0, 2]", [0, 2]),
    (TEXTS, "a, b,", ["a", "b"]),
    (TEXTS, '["a, b", " c"]', ["a, b", " c"]),
    (TEXTS, "[", "["),
    ({"type": "string"}, "8", "8"),
]


@pytest.mark.parametrize(("schema", "text", "value"), VALUES)
def test_a_text_is_read_as_the_value_that_it_means(schema: dict[str, Any], text: str, value: Any) -> None:
    read = from_text(schema, text)
    assert read == value
    assert type(read) is type(value)
    assert from_text(schema, to_text(read)) == value


def test_an_empty_text_is_the_default() -> None:
    assert from_text(INTEGER, "  ") is ABSENT
