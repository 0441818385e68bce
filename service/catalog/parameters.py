"""Checks values against the JSON Schemas of the catalog and fills in the defaults.

The subset of JSON Schema (draft 2020-12) that the catalog and the job specs use, with messages for people,
every wrong field at once, and the numbers made uniform: 4.0 is the integer 4, 1 is the number 1.0. Five
keywords are Assay's own: `fraction` (a number or "k/255", kept as text), `folder` (a name under the data
root), `file_name` (the name of a file or folder, no path), `fact` (null takes this fact of the job's data)
and `component` (a reference to another component, such as an attention mechanism; with `having`, to a
component that states this fact; in the items of a list its name alone, a text). `also` has words that others
use for a parameter, and `elsewhere` of an object the places of what is given in it by such words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from assay.service.catalog.schema_text import Schema, choices, describe
from assay.service.contract.fractions import parse_fraction
from assay.service.contract.problems import MAX_INTEGER, MAX_TEXT, Loc, Problems, nearest, readable

# (schema, value, loc, report) to the value with its defaults filled in, or INVALID; reports errors.
ComponentCheck = Callable[[Schema, object, Loc, Problems], object]


class _Invalid:
    def __repr__(self) -> str:
        return "INVALID"


INVALID: Final = _Invalid()
# Types that have few values, which a refusal lists.
FIXED: Mapping[str, list[Any]] = {"null": [None], "boolean": [True, False]}

MAX_NAMES = 20  # Names of an object that are compared with the names in its possible kinds.
MAX_ITEMS = 1000  # Maximum of items of a list with a schema that states no maximum.

PIXEL_STEPS = 255
DECIMAL = re.compile(r"(0|[1-9][0-9]*)(\.[0-9]+)?(e-?[0-9]{1,3})?", re.IGNORECASE)  # a number of JSON
MAX_EXACT_INTEGER = 2**53  # Whole floats below this are exact integers.

BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, step: value % step == 0,
}


def check(
    schema: Schema,
    value: object,
    problems: Problems,
    loc: Loc = (),
    *,
    component: ComponentCheck | None = None,
    noun: str = "field",
) -> Any:
    """Check a value and return it with every default; INVALID in the place of what is wrong."""
    return _Check(problems, schema.get("$defs", {}), component, noun).visit(schema, value, loc)


def numbers(schema: Schema, values: Mapping[str, Any]) -> dict[str, Any]:
    """Checked parameters as rules see them: fractions as floats, components by their names."""
    return {name: _plain(schema["properties"].get(name, {}), value) for name, value in values.items()}


def _plain(schema: Schema, value: Any) -> Any:
    branches = schema.get("anyOf", [schema])
    if isinstance(value, str) and "/" in value and any(branch.get("fraction", False) for branch in branches):
        return parse_fraction(value)
    if isinstance(value, Mapping) and any("component" in branch for branch in branches):
        return value["name"]
    return value


def _type_of(value: object) -> str:
    """The JSON type of a value; whole floats are integers, as in JSON Schema."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return "unknown"


class _Check:
    def __init__(
        self,
        problems: Problems,
        definitions: Mapping[str, Schema],
        component: ComponentCheck | None,
        noun: str,
    ) -> None:
        self.problems, self.definitions, self.component, self.noun = problems, definitions, component, noun
        self.by_type: dict[str, Callable[[Schema, Any, Loc], Any]] = {
            "object": self._object,
            "array": self._array,
            "string": self._string,
            "integer": self._number,
            "number": self._number,
        }

    def visit(self, schema: Schema, value: object, loc: Loc) -> Any:
        schema = self._resolved(schema)
        if "component" in schema and self.component is not None:
            return self._referred(schema, self.component, value, loc)
        if "anyOf" in schema:
            return self._any_of(schema, value, loc)
        if "enum" in schema or "const" in schema:
            return self._enum(schema, value, loc)
        wanted = schema.get("type")
        if wanted is None:
            return value
        if not _fits(_type_of(value), wanted):
            return self._refuse(schema, value, loc)
        handler = self._fraction if isinstance(wanted, list) else self.by_type.get(wanted)
        return value if handler is None else handler(schema, value, loc)

    def _referred(self, schema: Schema, component: ComponentCheck, value: object, loc: Loc) -> Any:
        if schema["type"] == "string" and not isinstance(value, str):
            return self._refuse(schema, value, loc)
        return component(schema, value, loc, self.problems)

    def _resolved(self, schema: Schema) -> Schema:
        if "$ref" not in schema:
            return schema
        return self.definitions[schema["$ref"].removeprefix("#/$defs/")]

    def _refuse(self, schema: Schema, value: object, loc: Loc) -> _Invalid:
        schema = self._described({**schema, "enum": schema["offered"]} if "offered" in schema else schema)
        text, parts = describe(schema), schema.get("anyOf", [schema])
        listed = [one for part in parts for one in choices(part) or FIXED.get(str(part.get("type")), [])]
        only_listed = all(choices(part) or str(part.get("type")) in FIXED for part in parts)
        words = {name: said.split() for name, said in schema.get("said", {}).items()}
        # A number may be the short form of a name: norm 2 for L2; and so may true, where it has words.
        short = ("integer", "boolean") if words else ("integer",)
        word = str(value) if _type_of(value) in short else value
        near = nearest(word, [name for name in listed if isinstance(name, str)], words)
        keys = [key for part in parts for key in ("name", "suite") if key in part.get("required", [])]
        if isinstance(value, str) and len(value) <= MAX_TEXT and near is None and keys:
            near = " or ".join(json.dumps({key: readable(value)}, ensure_ascii=False) for key in keys)
        self.problems.add(
            loc, f"must be {text}", given=value, allowed=listed if only_listed else text, nearest=near
        )
        return INVALID

    def _any_of(self, schema: Schema, value: object, loc: Loc) -> Any:
        given = _type_of(value)
        branches = [self._resolved(branch) for branch in schema["anyOf"]]
        fitting = [branch for branch in branches if _fits(given, branch.get("type", given))]
        for branch in fitting:
            trial = Problems(1)
            checked = _Check(trial, self.definitions, self.component, self.noun).visit(branch, value, loc)
            if not len(trial):
                return checked
        # In a list or an object the wrong item is named; among several kinds of object, the likeliest kind.
        if isinstance(value, dict) and fitting:
            return self._object_of(fitting, value, loc)
        if isinstance(value, list) and len(fitting) == 1:
            return self.visit(fitting[0], value, loc)
        return self._refuse(schema, value, loc)

    def _object_of(self, branches: list[Schema], value: dict[Any, Any], loc: Loc) -> Any:
        for branch in branches:
            if any(name in value for name in branch.get("required", [])):
                return self.visit(branch, value, loc)
        for branch in branches:
            names = list(value)[:MAX_NAMES]
            if len(branches) == 1 or any(nearest(name, branch.get("properties", {})) for name in names):
                return self.visit(branch, value, loc)
        return self._refuse({"anyOf": branches}, value, loc)

    def _enum(self, schema: Schema, value: object, loc: Loc) -> Any:
        for allowed in choices(schema):
            if value == allowed and _type_of(value) == _type_of(allowed):
                return allowed
        return self._refuse(schema, value, loc)

    def _object(self, schema: Schema, value: dict[Any, Any], loc: Loc) -> dict[str, Any]:
        properties: Mapping[str, Schema] = schema.get("properties", {})
        also = {name: part["also"].split() for name, part in properties.items() if "also" in part}
        also |= {place: words.split() for place, words in schema.get("elsewhere", {}).items()}
        if schema.get("additionalProperties", True):
            return dict(value)
        meant = set()
        for name in value:
            if name in properties:
                continue
            if self.problems.full:
                self.problems.unlisted += 1
                continue
            near = nearest(name, properties, also)
            meant.add(near)
            message = f"unknown {self.noun}"
            allowed = list(properties) or f"none: there are no {self.noun}s here"
            self.problems.add((*loc, str(name)), message, given=value[name], allowed=allowed, nearest=near)
        checked: dict[str, Any] = {}
        for name, part in properties.items():
            if name in value or "default" in part:
                item = self.visit(part, value[name] if name in value else part["default"], (*loc, name))
                checked |= {} if item is INVALID else {name: item}
            elif name in schema.get("required", []) and name not in meant:
                self.problems.add((*loc, name), "is required", allowed=describe(self._described(part)))
        return checked

    def _described(self, schema: Schema) -> dict[str, Any]:
        resolved = dict(self._resolved(schema))
        if "anyOf" in resolved:
            resolved["anyOf"] = [self._described(branch) for branch in resolved["anyOf"]]
        if "items" in resolved:
            resolved["items"] = self._described(resolved["items"])
        return resolved

    def _array(self, schema: Schema, value: list[Any], loc: Loc) -> Any:
        if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", math.inf):
            return self._refuse(schema, value, loc)
        if "maxItems" not in schema and len(value) > MAX_ITEMS:
            message = f"has {len(value)} items, at most {MAX_ITEMS} are allowed"
            self.problems.add(loc, message, given=value, allowed=f"a list of at most {MAX_ITEMS} items")
            return INVALID
        checked = []
        for index, item in enumerate(value):
            if self.problems.full:
                return INVALID
            checked.append(self.visit(schema.get("items", {}), item, (*loc, index)))
        return checked

    def _string(self, schema: Schema, value: str, loc: Loc) -> Any:
        # Databases and encoders refuse these, so accepting them would fail much later.
        if "\0" in value or any("\ud800" <= character <= "\udfff" for character in value):
            self.problems.add(loc, "must be UTF-8 text without null characters", given=value)
            return INVALID
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", math.inf):
            return self._refuse(schema, value, loc)
        return value

    def _number(self, schema: Schema, value: float, loc: Loc) -> Any:
        number = _uniform(value, schema["type"])
        if number is None or not _within(number, schema):
            return self._refuse(schema, value, loc)
        return number

    def _fraction(self, schema: Schema, value: Any, loc: Loc) -> Any:
        """The only schema with two types. Text stays text, so that a spec shows what its author wrote."""
        try:
            number = parse_fraction(value) if isinstance(value, str) else _uniform(value, "number")
        except ValueError:
            if not (DECIMAL.fullmatch(value.strip()) and _within(float(value), schema)):
                return self._refuse(schema, value, loc)
            message = f"must be {describe(schema)}; write {value.strip()} without quotes"
            self.problems.add(loc, message, given=value, allowed=describe(schema))
            return INVALID
        if number is None or not _within(number, schema):
            steps = pixel_steps(number)
            if steps is None or not _within(parse_fraction(steps), schema):
                return self._refuse(schema, value, loc)
            text = describe(schema)
            self.problems.add(loc, f"must be {text}", given=value, allowed=text, nearest=steps)
            return INVALID
        return "".join(value.split()) if isinstance(value, str) else number


def pixel_steps(value: object) -> str | None:
    """The fraction that a number of steps of 8-bit pixels means: 8 is "8/255"; None for another value."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value <= PIXEL_STEPS:
        return None
    return f"{int(value)}/{PIXEL_STEPS}" if value == int(value) else None


def _fits(given: str, wanted: str | list[str]) -> bool:
    types = [wanted] if isinstance(wanted, str) else wanted
    return given in types or (given == "integer" and "number" in types)


def _uniform(value: float, wanted: str) -> float | None:
    """The number as the wanted type, or None where that type cannot hold it."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if wanted == "integer":
            return int(value) if abs(value) < MAX_EXACT_INTEGER else None
        return value
    if abs(value) > MAX_INTEGER:
        return None
    return float(value) if wanted == "number" else value


def _within(number: float, schema: Schema) -> bool:
    return all(holds(number, schema[key]) for key, holds in BOUNDS.items() if key in schema)
