"""Components from the `PRESETS` of a model's module: the builder's entry without the fixed parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from assay.service.catalog.component import Component, Rule
from assay.service.catalog.rules import UnknownName, evaluate
from assay.workers.discovery.signatures import checked_default

NAME = re.compile(r"[a-z][a-z0-9_]*")
NAME_OF_MODEL = re.compile(r"\bmodel\.(\w+)")


def presets(module: ModuleType, builders: Mapping[str, Component]) -> Iterator[Component]:
    """The entries of a module's presets; ValueError names module and preset."""
    for name, preset in getattr(module, "PRESETS", {}).items():
        try:
            builder = builders.get(preset.builder.__name__)
            if builder is None or builder.kind != "model":
                raise ValueError("its builder must be a model in __all__ of the same module")
            yield _describe(name, preset, builder)
        except ValueError as error:
            raise ValueError(f"{module.__name__}: PRESETS: {name!r}: {error}") from error


def _describe(name: str, preset: Any, builder: Component) -> Component:
    if not NAME.fullmatch(name):
        raise ValueError("the catalog name must be lower case with underscores")
    fixed = {**preset.size, **preset.fixed}
    properties = builder.parameters["properties"]
    stated = [*preset.size, *preset.fixed, *preset.defaults]
    if unknown := sorted({*stated, *preset.descriptions} - set(properties)):
        raise ValueError(f"{builder.name} has no parameters {unknown}")
    if len(stated) > len(set(stated)):
        raise ValueError("a parameter may be in one of size, fixed and defaults only")
    # A default is JSON with a component's name; a builder needs the component itself.
    if references := [key for key in fixed if "component" in properties[key]]:
        raise ValueError(f"{references} name components, which can be a default and not fixed")
    fixed = {key: checked_default(properties[key], value) for key, value in fixed.items()}
    rules = [left for rule in builder.rules if (left := _rule_with(rule, fixed))]
    entry = builder.model_dump(by_alias=True) | {
        "name": name,
        "summary": preset.summary,
        "schema": _schema_less(builder.parameters, preset, set(fixed)),
        "rules": [rule.model_dump() for rule in rules],
        "facts": {**(builder.facts or {}), **{key: fixed[key] for key in preset.size}} or None,
        "fixed": fixed,
    }
    return Component.model_validate(entry)


def _schema_less(schema: Mapping[str, Any], preset: Any, fixed: set[str]) -> dict[str, Any]:
    properties = {}
    for key, part in schema["properties"].items():
        if key in fixed:
            continue
        changed = dict(part)
        if key in preset.defaults:
            # Beside the others' defaults, before the description.
            description = {"description": changed.pop("description")} if "description" in changed else {}
            changed |= {"default": checked_default(part, preset.defaults[key])} | description
        if key in preset.descriptions:
            changed["description"] = preset.descriptions[key]
        properties[key] = changed
    required = [
        key for key in schema.get("required", []) if key in properties and "default" not in properties[key]
    ]
    less = {key: value for key, value in schema.items() if key != "required"} | {"properties": properties}
    return less | ({"required": required} if required else {})


def _rule_with(rule: Rule, fixed: Mapping[str, Any]) -> Rule | None:
    """A rule with fixed values for names; ValueError: broken; None: no names left."""

    def value_of(match: re.Match[str]) -> str:
        return repr(fixed[match[1]]) if match[1] in fixed else match[0]

    expression = NAME_OF_MODEL.sub(value_of, rule.expression)
    if expression == rule.expression:
        return rule
    try:
        holds = evaluate(expression, {})
    except UnknownName:
        return Rule(expression=expression, message=rule.message)
    if not holds:
        raise ValueError(rule.message)
    return None
