"""JSON Schema in words, as they complete "must be ..."."""

from __future__ import annotations

from typing import Any

import pytest

from assay.service.catalog.schema_text import MANY, choices, describe

INTEGER, NUMBER, TEXT = {"type": "integer"}, {"type": "number"}, {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (INTEGER, "an integer"),
        ({**INTEGER, "minimum": 1, "maximum": 10}, "an integer from 1 to 10"),
        ({**INTEGER, "minimum": 0}, "an integer of at least 0"),
        ({**INTEGER, "maximum": -1}, "an integer of at most -1"),
        ({**INTEGER, "exclusiveMinimum": 0, "exclusiveMaximum": 10}, "an integer from 1 to 9"),
        ({**INTEGER, "minimum": 2, "multipleOf": 2}, "an integer of at least 2, a multiple of 2"),
        ({**INTEGER, "multipleOf": 8}, "an integer that is a multiple of 8"),
        (NUMBER, "a number"),
        ({**NUMBER, "minimum": 0, "maximum": 1}, "a number from 0 to 1"),
        ({**NUMBER, "exclusiveMinimum": 0}, "a number greater than 0"),
        ({**NUMBER, "minimum": 0, "exclusiveMaximum": 1}, "a number of at least 0 and less than 1"),
        ({**NUMBER, "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "a number greater than 0 and less than 1"),
        ({"type": ["number", "string"], "fraction": True}, 'a number or a fraction like "8/255"'),
        (
            {"type": ["number", "string"], "fraction": True, "minimum": 0},
            'a number or a fraction like "8/255", of at least 0',
        ),
        ({"type": "boolean"}, "true or false"),
        ({"type": "null"}, "null"),
    ],
)
def test_numbers(schema: dict[str, Any], words: str) -> None:
    assert describe(schema) == words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (TEXT, "text"),
        ({**TEXT, "maxLength": 200}, "text of at most 200 characters"),
        ({**TEXT, "minLength": 0, "maxLength": 1}, "text of at most 1 character"),
        ({**TEXT, "minLength": 1}, "text of at least 1 character"),
        ({**TEXT, "minLength": 2, "maxLength": 2}, "text of 2 characters"),
        ({**TEXT, "minLength": 1, "maxLength": 60}, "text of 1 to 60 characters"),
        ({**TEXT, "component": "attention"}, "the name of a component of kind attention"),
        ({"type": "object"}, "an object"),
        ({"type": "object", "required": ["name", "data"]}, 'an object with "name" and "data"'),
    ],
)
def test_texts_and_objects(schema: dict[str, Any], words: str) -> None:
    assert describe(schema) == words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "array"}, "a list of items"),
        ({"type": "array", "items": INTEGER}, "a list of integers"),
        ({"type": "array", "items": {**INTEGER, "minimum": 0}}, "a list of integers of at least 0"),
        ({"type": "array", "items": TEXT, "maxItems": 5}, "a list of at most 5 texts"),
        ({"type": "array", "items": TEXT, "minItems": 1, "maxItems": 5}, "a list of 1 to 5 texts"),
        ({"type": "array", "items": NUMBER, "minItems": 3, "maxItems": 3}, "a list of 3 numbers"),
        ({"type": "array", "items": {**INTEGER, "enum": [1, 3]}}, "a list of items, each one of 1, 3"),
        (
            {"type": "array", "items": {**TEXT, "component": "corruption"}},
            "a list of names of components of kind corruption",
        ),
    ],
)
def test_lists(schema: dict[str, Any], words: str) -> None:
    assert describe(schema) == words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"const": "auto"}, '"auto"'),
        ({"const": 1}, "1"),
        ({"enum": ["only"]}, '"only"'),
        ({"enum": ["all", True, None, 2]}, "one of all, true, null, 2"),
        ({"enum": [*map(str, range(MANY))]}, "one of " + ", ".join(map(str, range(MANY)))),
        ({"enum": [*map(str, range(MANY + 1))]}, f"one of {MANY + 1} names"),
        ({"anyOf": [{"type": "null"}, INTEGER]}, "an integer or null"),
        ({"anyOf": [{"type": "null"}, INTEGER, {"const": "auto"}]}, 'an integer, "auto", or null'),
        ({"anyOf": [INTEGER, {"type": "integer"}]}, "an integer"),
        (
            {"anyOf": [{"enum": ["all", "first", "last"]}, {"type": "array", "items": INTEGER}]},
            "one of all, first, last, or a list of integers",
        ),
    ],
)
def test_alternatives(schema: dict[str, Any], words: str) -> None:
    """Null comes last, and what reads alike is said once."""
    assert describe(schema) == words


def test_choices_are_the_values_of_every_enumeration() -> None:
    branches = [{"enum": ["all", "first"]}, {"const": "auto"}, {"const": None}, INTEGER]
    assert choices({"anyOf": branches}) == ["all", "first", "auto", None]
    assert choices({"enum": [-1, 1]}) == [-1, 1]
    assert choices(INTEGER) == []
