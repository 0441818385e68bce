"""Form fields of a JSON Schema: a component's parameters as labelled inputs, and their texts as values.

The name of a field is its place in the job's spec, with points: `model.params.depth`. An empty text is the
default. A reference to another component is a choice of its name and, nested, its own parameters; the hidden
field `<name>.shown` says for which choice these parameters were drawn.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from assay.service.catalog.catalog import Catalog
from assay.service.catalog.component import Component
from assay.service.catalog.schema_text import Schema, choices, describe
from assay.service.contract.errors import ErrorDetail
from assay.service.dashboard.field_texts import ABSENT, from_text, same, to_text

Texts = Mapping[str, str]

# The default in the list of a field with so many names or fewer is a choice; more names are typed.
MAX_CHOICES = 60
# References inside references that are drawn; deeper ones are edited as JSON.
MAX_DEPTH = 4
SHOWN = ".shown"
PIXEL_STEPS = 255


@dataclass(frozen=True)
class FormField:
    """An input of a form."""

    name: str  # Place in the spec, with points
    label: str  # Its last part
    control: str  # "number", "text", "select" or "reference" (a select with nested fields)
    value: str = ""  # The text; empty for the default
    default: str = ""  # The default as text; empty for a required field
    help: str = ""  # Its meaning
    allowed: str = ""  # The allowed values in words
    required: bool = False  # Whether there is no default
    choices: tuple[str, ...] = ()  # Names to choose from, or to suggest
    bounds: tuple[tuple[str, str], ...] = ()  # `min`, `max` and `step` of a number
    nested: tuple[FormField, ...] = ()  # Parameters of the chosen component
    kind: str = ""  # Of the chosen component; empty for other fields
    chosen: str = ""  # Name of the chosen component, also of the default

    @property
    def placeholder(self) -> str:
        """The default, in an empty field; empty where there is nothing to see."""
        return {"null": "none", "[]": ""}.get(self.default, self.default)

    def is_set(self) -> bool:
        """Whether this field or a nested field differs from the default."""
        return bool(self.value) or any(one.is_set() for one in self.nested)


def fields_of(
    catalog: Catalog, schema: Schema, values: Mapping[str, Any], prefix: str, depth: int = 0
) -> tuple[FormField, ...]:
    """The fields of an object."""
    found = []
    for name, given in schema["properties"].items():
        part = resolved(given, schema)
        value = values.get(name)
        field = _field(part, f"{prefix}{name}", name, to_text(value) if name in values else "")
        kind = kind_of(part)
        if kind is not None:
            field = _reference(catalog, part, kind, field, value, depth)
        found.append(replace(field, required=name in schema.get("required", []) and "default" not in part))
    return tuple(found)


def plain_fields(schema: Schema) -> Iterator[FormField]:
    """The fields of an object without values and without nested fields, as a table shows them."""
    for name, given in schema["properties"].items():
        part = resolved(given, schema)
        field = _field(part, name, name, "")
        kind = kind_of(part)
        allowed = f"a component of kind {kind}" if kind is not None else field.allowed
        required = name in schema.get("required", []) and "default" not in part
        yield replace(field, allowed=allowed, required=required)


def read_fields(
    catalog: Catalog, schema: Schema, texts: Texts, prefix: str, depth: int = 0
) -> dict[str, Any]:
    """The properties of an object from the texts of its fields, without properties at their defaults."""
    values: dict[str, Any] = {}
    for name, given in schema["properties"].items():
        part, place = resolved(given, schema), f"{prefix}{name}"
        kind = kind_of(part)
        if kind is not None:
            value = _read_reference(catalog, part, kind, texts, place, depth)
        else:
            value = from_text(part, texts.get(place, ""))
        if value is not ABSENT and not is_default(part, value):
            values[name] = value
    return values


def without_defaults(catalog: Catalog, schema: Schema, values: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that differ from their defaults, nested components included."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        part = resolved(schema["properties"].get(name, {}), schema)
        kind, left = kind_of(part), value
        if kind is not None and isinstance(value, str | Mapping):
            reference = {"name": value} if isinstance(value, str) else value
            left = _reference_without_defaults(catalog, kind, reference)
        if not is_default(part, left):
            kept[name] = left
    return kept


def _reference_without_defaults(catalog: Catalog, kind: str, value: Mapping[str, Any]) -> dict[str, Any]:
    nested = _known(catalog, kind, str(value.get("name", "")))
    params = value.get("params")
    if nested is not None and isinstance(params, Mapping):
        params = without_defaults(catalog, nested.parameters, params)
    rest = {key: one for key, one in value.items() if key != "params"}
    return {**rest, "params": params} if params else rest


def is_default(part: Schema, value: object) -> bool:
    """Whether a value is the default of its schema."""
    if "default" not in part:
        return False
    default = part["default"]
    if isinstance(default, Mapping) and not default.get("params"):
        default = {key: one for key, one in default.items() if key != "params"}
    return same(value, default)


def texts_of(fields: Iterable[FormField]) -> dict[str, str]:
    """What a browser sends of these fields."""
    texts: dict[str, str] = {}
    for field in fields:
        texts[field.name] = field.value
        if field.control == "reference":
            texts |= {field.name + SHOWN: field.chosen, **texts_of(field.nested)}
    return texts


def parted(
    fields: Sequence[FormField], errors: Collection[str], first: bool = False
) -> tuple[list[FormField], list[FormField]]:
    """The fields to show at once, which are set, required or wrong, and the others."""
    shown = [
        field
        for index, field in enumerate(fields)
        if (first and not index)
        or field.required
        or field.is_set()
        or any(name == field.name or name.startswith(f"{field.name}.") for name in errors)
    ]
    return shown, [field for field in fields if field not in shown]


def changed_components(texts: Texts) -> list[str]:
    """Fields with a chosen component other than the component with the drawn parameters."""
    return [
        name.removesuffix(SHOWN)
        for name, shown in texts.items()
        if name.endswith(SHOWN) and texts.get(name.removesuffix(SHOWN), "") not in ("", shown)
    ]


def place_of(loc: Sequence[str | int], names: Iterable[str]) -> str | None:
    """The field that an error is about: the nearest one at or above its place; None for none of them."""
    known = set(names)
    parts = [str(part) for part in loc]
    for length in range(len(parts), 0, -1):
        place = ".".join(parts[:length])
        for candidate in (place, f"{place}.name"):
            if candidate in known:
                return candidate
    return None


def errors_by_field(details: Sequence[ErrorDetail], names: Iterable[str]) -> dict[str, list[ErrorDetail]]:
    """The errors of each field; errors of no field have the empty name."""
    known, found = set(names), dict[str, list[ErrorDetail]]()
    for detail in details:
        found.setdefault(place_of(detail.loc, known) or "", []).append(detail)
    return found


def with_values(schema: Schema, values: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with other defaults, such as the parameters of a model that was trained before."""
    properties = {
        name: {**part, "default": values[name]} if name in values else part
        for name, part in schema["properties"].items()
    }
    return {**schema, "properties": properties}


def resolved(part: Schema, schema: Schema) -> dict[str, Any]:
    """A property's schema without references into `$defs`."""
    whole: dict[str, Any] = dict(part)
    if "$ref" in part:
        whole |= schema["$defs"][part["$ref"].rpartition("/")[2]]
    if "anyOf" in whole:
        whole["anyOf"] = [resolved(branch, schema) for branch in whole["anyOf"]]
    return whole


def kind_of(part: Schema) -> str | None:
    """The kind of the component that a property refers to by an object; None for other properties."""
    for branch in part.get("anyOf", [part]):
        if "component" in branch and branch.get("type") != "string":
            return str(branch["component"])
    return None


def _field(part: Schema, place: str, label: str, value: str) -> FormField:
    branches = part.get("anyOf", [part])
    listed = [to_text(choice) for choice in choices(part)]
    types = {str(branch.get("type", "")) for branch in branches}
    closed = all("enum" in branch or "const" in branch or branch.get("type") == "null" for branch in branches)
    if types == {"boolean"} or types == {"boolean", "null"}:
        listed, closed = ["true", "false"], True
    if closed and "null" in types and "null" not in listed:
        listed.append("null")
    default = _default_text(part)
    control = "select" if closed and len(listed) <= MAX_CHOICES else "text"
    bounds: tuple[tuple[str, str], ...] = ()
    if control == "text" and types in ({"integer"}, {"number"}):
        control = "number"
        bounds = (("step", "1" if types == {"integer"} else "any"),)
        bounds += tuple((key[:3], json.dumps(part[key])) for key in ("minimum", "maximum") if key in part)
    return FormField(
        name=place,
        label=label,
        control=control,
        value=value,
        default=default,
        help=str(part.get("description", "")),
        allowed=describe(part) if kind_of(part) is None else "",
        choices=tuple(listed[:MAX_CHOICES] if control == "text" else listed),
        bounds=bounds,
    )


def _default_text(part: Schema) -> str:
    default = part.get("default", "")
    if isinstance(default, float) and any(one.get("fraction") for one in part.get("anyOf", [part])):
        steps = default * PIXEL_STEPS
        if steps >= 1 and math.isclose(steps, round(steps), rel_tol=1e-9):
            return f"{round(steps)}/{PIXEL_STEPS}"
    return to_text(default)


def _reference(
    catalog: Catalog, part: Schema, kind: str, field: FormField, value: Any, depth: int
) -> FormField:
    branches = part.get("anyOf", [part])
    fact = next((branch["having"] for branch in branches if "having" in branch), None)
    names = [one.name for one in catalog.list(kind) if fact is None or fact in (one.facts or {})]
    if any(branch.get("type") == "null" for branch in branches):
        names.append("null")
    default = part.get("default")
    standard = default if isinstance(default, Mapping) else {}
    given = value if isinstance(value, Mapping) else {}
    chosen = str(given.get("name") or standard.get("name", ""))
    component = _known(catalog, kind, chosen)
    nested: tuple[FormField, ...] = ()
    if component is not None and depth < MAX_DEPTH:
        params = given.get("params", standard.get("params", {}) if not given else {})
        nested = fields_of(catalog, component.parameters, params, f"{field.name}.params.", depth + 1)
    text = to_text(value) if value is None and field.value else str(given.get("name", ""))
    return replace(
        field,
        control="reference",
        value="" if text == standard.get("name") else text,
        default=str(standard.get("name", "null")) if "default" in part else "",
        choices=tuple(names),
        allowed=f"a component of kind {kind}",
        nested=nested,
        kind=kind,
        chosen=chosen,
    )


def _read_reference(catalog: Catalog, part: Schema, kind: str, texts: Texts, place: str, depth: int) -> Any:
    text = texts.get(place, "").strip()
    standard = part.get("default") if isinstance(part.get("default"), Mapping) else {}
    name = text or str((standard or {}).get("name", ""))
    if text == "null" or not name:
        return None if text == "null" else ABSENT
    component, params = _known(catalog, kind, name), dict[str, Any]()
    if component is not None and depth < MAX_DEPTH:
        params = read_fields(catalog, component.parameters, texts, f"{place}.params.", depth + 1)
    if not text and not params:
        return ABSENT
    return {"name": name, "params": params} if params else {"name": name}


def _known(catalog: Catalog, kind: str, name: str) -> Component | None:
    return catalog.find(kind, name) if name in catalog.names(kind) else None
