"""JSON Schema in words: "an integer from 1 to 10", "one of all, first, last, or a list of integers"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

NAMES = {"integer": "an integer", "number": "a number", "boolean": "true or false", "null": "null"}
PLURALS = {"integer": "integers", "number": "numbers", "string": "texts", "boolean": "booleans"}
MANY = 12


def describe(schema: Schema) -> str:
    """The allowed values of a schema of the catalog, with references resolved, to complete "must be ..."."""
    if "anyOf" in schema:
        return _alternatives(schema["anyOf"])
    if "const" in schema:
        return _quoted(schema["const"])
    if "enum" in schema:
        return _one_of(schema["enum"])
    if schema.get("fraction"):
        return f'a number or a fraction like "8/255"{_bounds(schema, lead=", ")}'
    if schema["type"] == "array":
        return _list(schema)
    if schema["type"] == "string" and "component" in schema:
        return f"the name of a component of kind {schema['component']}"
    if schema["type"] == "string":
        return "text" + _lengths(schema, "minLength", "maxLength", "character", lead=" of ")
    if schema["type"] == "object":
        return _object(schema)
    return NAMES[schema["type"]] + _bounds(schema, lead=" ")


def choices(schema: Schema) -> list[Any]:
    """Every value that an enumeration in the schema lists; empty without an enumeration."""
    branches = schema.get("anyOf", [schema])
    listed: list[Any] = []
    for branch in branches:
        listed += branch.get("enum", [branch["const"]] if "const" in branch else [])
    return listed


def _alternatives(branches: list[Schema]) -> str:
    # Null comes last, regardless of its place in the annotation.
    ordered = sorted(branches, key=lambda branch: branch.get("type") == "null")
    texts = list(dict.fromkeys(describe(branch) for branch in ordered))
    if len(texts) == 2 and texts[1] == "null":
        return " or ".join(texts)
    return ", ".join(texts[:-1]) + f", or {texts[-1]}" if len(texts) > 1 else texts[0]


def _one_of(values: list[Any]) -> str:
    if len(values) == 1:
        return _quoted(values[0])
    if len(values) > MANY:
        return f"one of {len(values)} names"
    return "one of " + ", ".join(_plain(value) for value in values)


def _plain(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _quoted(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else _plain(value)


def _bounds(schema: Schema, *, lead: str) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if schema["type"] == "integer":  # "from 0 to 9" reads better than "of at least 0 and less than 10"
        low, above = (above + 1 if low is None and above is not None else low), None
        high, below = (below - 1 if high is None and below is not None else high), None
    parts = []
    if low is not None and high is not None:
        parts.append(f"from {low} to {high}")
    elif low is not None:
        parts.append(f"of at least {low}")
    elif high is not None:
        parts.append(f"of at most {high}")
    parts += [f"greater than {above}"] if above is not None else []
    parts += [f"less than {below}"] if below is not None else []
    text = " and ".join(parts)
    if (step := schema.get("multipleOf")) is not None:
        text += f"{', ' if text else 'that is '}a multiple of {step}"
    return lead + text if text else ""


def _lengths(schema: Schema, low_key: str, high_key: str, noun: str, *, lead: str) -> str:
    low, high = schema.get(low_key), schema.get(high_key)
    if low is None and high is None:
        return ""
    if low == high:
        count = str(low)
    elif high is None:
        count = f"at least {low}"
    elif not low:
        count = f"at most {high}"
    else:
        count = f"{low} to {high}"
    plural = "" if (high if high is not None else low) == 1 else "s"
    return f"{lead}{count} {noun}{plural}"


def _list(schema: Schema) -> str:
    items = schema.get("items", {})
    if items.get("type") == "string" and "component" in items:
        plural = f"names of components of kind {items['component']}"
    elif items.get("type") in PLURALS and "enum" not in items:
        plural = PLURALS[items["type"]] + _bounds(items, lead=" ")
    elif items:
        plural = f"items, each {describe(items)}"
    else:
        plural = "items"
    low, high = schema.get("minItems"), schema.get("maxItems")
    if low is None and high is None:
        return f"a list of {plural}"
    count = _lengths(schema, "minItems", "maxItems", "item", lead="").rsplit(" ", 1)[0]
    return f"a list of {count} {plural}"


def _object(schema: Schema) -> str:
    required = schema.get("required", [])
    if not required:
        return "an object"
    return "an object with " + " and ".join(f'"{name}"' for name in required)
