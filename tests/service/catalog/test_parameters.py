from __future__ import annotations

import json
import math
from typing import Any

import pytest

from assay.service.catalog.parameters import INVALID, MAX_ITEMS, check, numbers
from assay.service.catalog.schema_text import describe
from assay.service.contract.errors import ErrorDetail
from assay.service.contract.fractions import PATTERN, fraction_value, parse_fraction
from assay.service.contract.problems import MAX_DETAILS, Problems, path_text, show

EPSILON = {"type": ["number", "string"], "pattern": PATTERN, "fraction": True, "minimum": 0, "maximum": 1}
LAYERS = {"anyOf": [{"enum": ["all", "first", "last"]}, {"type": "array", "items": {"type": "integer"}}]}


def run(schema: dict[str, Any], value: object) -> tuple[Any, list[ErrorDetail]]:
    problems = Problems()
    checked = check(schema, value, problems, ("p",))
    json.dumps(
        [detail.model_dump() for detail in problems.details], allow_nan=False, ensure_ascii=False
    ).encode()
    return checked, problems.details


def parameters(**properties: dict[str, Any]) -> dict[str, Any]:
    required = [name for name, part in properties.items() if "default" not in part]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        ({"type": "integer", "minimum": 1}, 4, 4),
        ({"type": "integer"}, 4.0, 4),
        ({"type": "integer"}, -(2**63) + 1, -(2**63) + 1),
        ({"type": "number"}, 1, 1.0),
        ({"type": "number", "exclusiveMaximum": 1}, 0.999, 0.999),
        ({"type": "boolean"}, False, False),
        ({"type": "string", "minLength": 1}, "é", "é"),
        ({"type": "null"}, None, None),
        ({"enum": ["a", "b"]}, "b", "b"),
        ({"enum": [-1, 1]}, 1.0, 1),
        ({"const": "auto", "type": "string"}, "auto", "auto"),
        (LAYERS, "first", "first"),
        (LAYERS, [0, 2.0], [0, 2]),
        (LAYERS, [], []),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, None),
        ({"type": "integer", "multipleOf": 8}, 64, 64),
        (EPSILON, 0.5, 0.5),
        (EPSILON, 1, 1.0),
        (EPSILON, "8/255", "8/255"),
        (EPSILON, " 0.5 / 255 ", "0.5/255"),
        ({"type": "array", "items": {"enum": ["fog"]}, "minItems": 1}, ["fog"], ["fog"]),
    ],
)
def test_accepted_and_made_uniform(schema: dict[str, Any], given: object, kept: object) -> None:
    checked, details = run(schema, given)
    assert not details
    assert checked == kept
    assert type(checked) is type(kept)


@pytest.mark.parametrize(
    ("schema", "given", "message"),
    [
        ({"type": "integer", "minimum": 1, "maximum": 9}, 0, "must be an integer from 1 to 9"),
        ({"type": "integer", "minimum": 1}, 0, "must be an integer of at least 1"),
        (
            {"type": "integer", "exclusiveMinimum": 0, "exclusiveMaximum": 9},
            9,
            "must be an integer from 1 to 8",
        ),
        ({"type": "integer", "maximum": 9}, 10, "must be an integer of at most 9"),
        ({"type": "integer"}, True, "must be an integer"),
        ({"type": "integer"}, "4", "must be an integer"),
        ({"type": "integer"}, 4.5, "must be an integer"),
        ({"type": "integer"}, None, "must be an integer"),
        ({"type": "integer"}, math.nan, "must be an integer"),
        ({"type": "integer"}, math.inf, "must be an integer"),
        ({"type": "integer"}, 1e300, "must be an integer"),
        ({"type": "integer"}, 10**4000, "must be an integer"),
        ({"type": "integer", "multipleOf": 8}, 4, "must be an integer that is a multiple of 8"),
        ({"type": "number"}, math.nan, "must be a number"),
        ({"type": "number"}, -math.inf, "must be a number"),
        ({"type": "number"}, 10**400, "must be a number"),
        ({"type": "number"}, "0.5", "must be a number"),
        ({"type": "number"}, False, "must be a number"),
        ({"type": "number", "exclusiveMinimum": 0}, 0, "must be a number greater than 0"),
        ({"type": "boolean"}, 1, "must be true or false"),
        ({"type": "boolean"}, "true", "must be true or false"),
        ({"type": "string"}, 3, "must be text"),
        ({"type": "string", "maxLength": 2}, "abc", "must be text of at most 2 characters"),
        ({"type": "string"}, "\ud800", "must be UTF-8 text without null characters"),
        ({"type": "string"}, "a\0b", "must be UTF-8 text without null characters"),
        ({"enum": ["Linf", "L2"]}, "L3", "must be one of Linf, L2"),
        ({"enum": [0, 1]}, True, "must be one of 0, 1"),
        ({"enum": ["a"]}, ["a"], 'must be "a"'),
        (
            {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
            "x",
            "must be an integer of at least 0 or null",
        ),
        (LAYERS, "frist", "must be one of all, first, last, or a list of integers"),
        (LAYERS, 1, "must be one of all, first, last, or a list of integers"),
        (LAYERS, [1, "x"], "must be one of all, first, last, or a list of integers"),
        (EPSILON, "8/0", 'must be a number or a fraction like "8/255", from 0 to 1'),
        (EPSILON, "-1/255", 'must be a number or a fraction like "8/255", from 0 to 1'),
        (EPSILON, "300/255", 'must be a number or a fraction like "8/255", from 0 to 1'),
        (
            EPSILON,
            "0.5",
            'must be a number or a fraction like "8/255", from 0 to 1; write 0.5 without quotes',
        ),
        (EPSILON, "9", 'must be a number or a fraction like "8/255", from 0 to 1'),
        (EPSILON, ".5", 'must be a number or a fraction like "8/255", from 0 to 1'),
        (EPSILON, "1e400/1", 'must be a number or a fraction like "8/255", from 0 to 1'),
        (EPSILON, "٨/255", 'must be a number or a fraction like "8/255", from 0 to 1'),
        (EPSILON, math.nan, 'must be a number or a fraction like "8/255", from 0 to 1'),
        (EPSILON, 2, 'must be a number or a fraction like "8/255", from 0 to 1'),
        (
            {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
            [1, 2, 3],
            "must be a list of at most 2 integers",
        ),
        ({"type": "array", "items": {"type": "integer"}}, {}, "must be a list of integers"),
        ({"type": "object"}, [], "must be an object"),
    ],
)
def test_refused_with_one_clear_message(schema: dict[str, Any], given: object, message: str) -> None:
    checked, details = run(schema, given)
    assert checked is INVALID
    assert [(detail.loc, detail.message) for detail in details] == [(["p"], message)]


def test_nearest_and_allowed_of_names() -> None:
    _, [detail] = run({"enum": ["code", "paper"]}, "Papre")
    assert (detail.given, detail.allowed, detail.nearest) == ("Papre", ["code", "paper"], "paper")
    _, [detail] = run(LAYERS, "frist")
    assert detail.nearest == "first"


def test_long_enumerations_are_counted_not_listed() -> None:
    _, [detail] = run({"enum": [f"resnet{n}" for n in range(500)]}, "resnet_50")
    assert detail.message == "must be one of 500 names"
    assert detail.allowed == "one of 500 values, listed in the catalog"
    assert detail.nearest == "resnet50"


def test_every_wrong_field_at_once() -> None:
    schema = parameters(
        steps={"type": "integer", "minimum": 1, "default": 20},
        epsilon={**EPSILON, "default": 0.1},
        name={"type": "string"},
        sizes={"type": "array", "items": {"type": "integer"}, "default": []},
    )
    checked, details = run(schema, {"steps": 0, "epsilonn": 1, "sizes": [1, "a", 2, None]})
    assert {path_text(detail.loc): detail.message for detail in details} == {
        "p.epsilonn": "unknown field",
        "p.steps": "must be an integer of at least 1",
        "p.name": "is required",
        "p.sizes[1]": "must be an integer",
        "p.sizes[3]": "must be an integer",
    }
    assert details[0].nearest == "epsilon"
    assert details[0].allowed == ["steps", "epsilon", "name", "sizes"]
    assert checked["epsilon"] == 0.1
    assert "steps" not in checked


def test_defaults_are_filled_in_and_not_shared() -> None:
    schema = parameters(sizes={"type": "array", "items": {"type": "integer"}, "default": [1]})
    first, _ = run(schema, {})
    first["sizes"].append(2)
    second, _ = run(schema, {})
    assert second == {"sizes": [1]}


def test_wrong_fields_of_a_hostile_body_are_capped() -> None:
    problems = Problems()
    check(parameters(x={"type": "integer"}), {f"k{n}": n for n in range(100_000)}, problems)
    assert len(problems.details) == MAX_DETAILS
    many = {"type": "array", "items": {"type": "integer"}}
    problems = Problems()
    assert check(many, ["x"] * MAX_ITEMS, problems) is INVALID
    assert len(problems.details) == MAX_DETAILS
    problems = Problems()
    assert check(many, [1] * (MAX_ITEMS + 1), problems) is INVALID
    assert [detail.allowed for detail in problems.details] == [f"a list of at most {MAX_ITEMS} items"]


def test_the_likeliest_kind_of_object_is_explained() -> None:
    job = {
        "type": "object",
        "properties": {"job": {"type": "string"}},
        "required": ["job"],
        "additionalProperties": False,
    }
    timm = {
        "type": "object",
        "properties": {"timm": {"const": True}},
        "required": ["timm"],
        "additionalProperties": False,
    }
    either = {"anyOf": [job, timm, {"type": "null"}]}
    assert run(either, {"timm": True}) == ({"timm": True}, [])
    _, [detail] = run(either, {"timm": 1})
    assert (detail.loc, detail.message) == (["p", "timm"], "must be true")
    _, [detail] = run(either, {"tim": True})
    assert (detail.loc, detail.nearest) == (["p", "tim"], "timm")
    _, [detail] = run(either, {})
    assert detail.message == 'must be an object with "job", or an object with "timm"'


def test_rules_and_components_see_fractions_as_floats() -> None:
    schema = parameters(epsilon=EPSILON, step={"anyOf": [EPSILON, {"type": "null"}]}, name={"type": "string"})
    values = {"epsilon": "51/255", "step": "1/4", "name": "1/4"}
    assert numbers(schema, values) == {"epsilon": 0.2, "step": 0.25, "name": "1/4"}
    assert numbers(schema, {"epsilon": 0.3, "step": None}) == {"epsilon": 0.3, "step": None}


@pytest.mark.parametrize(("text", "value"), [("8/255", 8 / 255), ("0.5/255", 0.5 / 255), ("-1/4", -0.25)])
def test_fractions(text: str, value: float) -> None:
    assert parse_fraction(text) == value


@pytest.mark.parametrize(
    "text", ["8/0", "8", "/255", "8/", "1/2/3", "nan/1", "1/-2", "1e3/2", "8/0.0", "9" * 400 + "/1"]
)
def test_what_is_no_fraction(text: str) -> None:
    with pytest.raises(ValueError, match="allowed"):
        parse_fraction(text)


def test_anything_given_is_shown_as_json() -> None:
    hostile = {"\ud800": [math.nan, math.inf, 10**5000, "\0", "x" * 10_000, object()], "deep": [[[[[[1]]]]]]}
    shown = json.dumps(show(hostile), allow_nan=False, ensure_ascii=False).encode()
    assert len(shown) < 1000
    assert len(json.dumps(show(list(range(10**6))))) < 1000


def test_lists_in_words() -> None:
    named = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    assert describe({"type": "array", "items": named}) == 'a list of items, each an object with "name"'
    bounded = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 5}, "minItems": 1}
    assert describe(bounded) == "a list of at least 1 integers from 1 to 5"


def test_a_number_and_a_fraction_have_the_same_value() -> None:
    assert fraction_value("0.5/255") == fraction_value(0.5 / 255) == 0.5 / 255
    with pytest.raises(ValueError, match="not a fraction"):
        fraction_value("half")


def test_what_is_shown_twice_keeps_its_count() -> None:
    values = list(range(100))
    shown = show(values)
    assert shown[-1] == "... 80 more"
    assert show(shown) == shown
    names = show({str(value): value for value in values})
    assert names["..."] == "80 more"
    assert show(names) == names
