"""JSON Schema from a signature: the keyword-only arguments of a component are its parameters.

    epsilon: Annotated[float, "fraction", Ge(0)] = 8 / 255

becomes a property that takes a number or "k/255", at least 0. Text in the metadata marks facts that types
cannot express: `fraction`, `folder`, `file_name` (a plain name, no path), `job` (the id of a training job),
`fact:FACT` (null takes this fact of the job's data), `strength` (how large the change of an example is, which
pages show with every row, as `epsilon`), `system` (set by the program, hidden from users), and
`attention`, `corruption`, `data`, `model` or `words` (the name of a component of that kind with its
parameters; `model:FACT` asks for a model that states the fact; of `list[str]`, names without parameters). The
description is the parameter's in the `Args:` of the docstring, else the `doc(...)` in the metadata of a type
that components share.
"""

from __future__ import annotations

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import annotated_types

from assay.service.catalog.catalog import NAME, REFERENCE
from assay.service.catalog.parameters import check
from assay.service.contract.fractions import PATTERN
from assay.service.contract.problems import Problems, path_text

SIMPLE: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}
MARKERS = (
    "attention",
    "corruption",
    "data",
    "fact",
    "file_name",
    "folder",
    "fraction",
    "job",
    "model",
    "strength",
    "system",
    "words",
)
REFERRED = ("attention", "corruption", "data", "model", "words")  # Markers that are kinds of components

# Constraint class, attribute, keywords for numbers, lists, text.
CONSTRAINTS: tuple[tuple[type, str, str | None, str | None, str | None], ...] = (
    (annotated_types.Ge, "ge", "minimum", None, None),
    (annotated_types.Gt, "gt", "exclusiveMinimum", None, None),
    (annotated_types.Le, "le", "maximum", None, None),
    (annotated_types.Lt, "lt", "exclusiveMaximum", None, None),
    (annotated_types.MultipleOf, "multiple_of", "multipleOf", None, None),
    (annotated_types.MinLen, "min_length", None, "minItems", "minLength"),
    (annotated_types.MaxLen, "max_length", None, "maxItems", "maxLength"),
)
# Words of cleverhans, Foolbox, torchattacks, ART, AutoAttack, RobustBench, TextAttack and timm, for which the
# service suggests a parameter, in all components. Capitals, hyphens and underscores do not count.
SYNONYMS: Mapping[str, Sequence[str]] = json.loads(
    Path(__file__).with_name("synonyms.json").read_text(encoding="utf-8")
)
ARGUMENT_LINE = re.compile(r"^(\w+)(?: \([^)]*\))?: (.+)$")


def schema_of_parameters(
    component: Callable[..., Any], choices: Mapping[str, Iterable[str]]
) -> dict[str, Any]:
    """JSON Schema of the parameters of a function, or of a class's `__init__`.

    `choices`: allowed texts that only a program can list. ValueError names module and parameter of an
    inexpressible annotation or default.
    """
    function = component.__init__ if inspect.isclass(component) else component
    where = f"{component.__module__}.{component.__name__}"
    notes = _described_arguments(component, function)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ValueError(
                f"{where}: *{parameter.name} hides parameters; write them as keyword-only arguments"
            )
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        try:
            schema = _schema_of_parameter(parameter, function, choices.get(parameter.name))
        except ValueError as error:
            raise ValueError(f"{where}: parameter {parameter.name!r}: {error}") from error
        if schema is None:
            continue
        note = notes.get(parameter.name) or _shared_description(_evaluated(parameter, function))
        properties[parameter.name] = schema | ({"description": note} if note else {})
        required += [parameter.name] if "default" not in schema else []
    if unknown := sorted(set(choices) - set(properties)):
        raise ValueError(f"{where}: CHOICES names {unknown}, which are no parameters of it")
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | ({"required": required} if required else {})


def with_synonyms(properties: Mapping[str, Any]) -> dict[str, Any]:
    """A schema's parameters with their words, except words that are parameters too."""
    found = {name: [word for word in SYNONYMS.get(name, ()) if word not in properties] for name in properties}
    return {
        name: part | ({"also": " ".join(found[name])} if found[name] else {})
        for name, part in properties.items()
    }


def schema_of_annotation(annotation: object) -> dict[str, Any] | None:
    """JSON Schema of an annotation, None for a `system` parameter; ValueError: inexpressible."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(arguments[0], arguments[1:])
    if annotation in (None, type(None)):
        return {"type": "null"}
    if isinstance(annotation, type) and annotation in SIMPLE:
        return {"type": SIMPLE[annotation]}
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return _union([schema_of_annotation(argument) for argument in arguments])
    if origin is list:
        return {"type": "array", "items": schema_of_annotation(arguments[0])}
    raise ValueError(
        f"the annotation {annotation!r} cannot be expressed; allowed: bool, int, float, str, Literal,"
        f" list[...], X | None, and Annotated with bounds or a marker ({', '.join(MARKERS)})"
    )


def _schema_of_parameter(
    parameter: inspect.Parameter, function: Callable[..., Any], choices: Iterable[str] | None
) -> dict[str, Any] | None:
    if parameter.annotation is parameter.empty:
        raise ValueError("has no annotation")
    schema = schema_of_annotation(_evaluated(parameter, function))
    if schema is None:
        return None
    if choices is not None:
        _list_choices(schema, sorted(set(choices)))
    if parameter.default is not parameter.empty:
        schema["default"] = checked_default(schema, parameter.default)
    return schema


def _evaluated(parameter: inspect.Parameter, function: Callable[..., Any]) -> object:
    holder = types.SimpleNamespace(__annotations__={parameter.name: parameter.annotation})
    scope = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(holder, globalns=scope, include_extras=True)[parameter.name]
    except (NameError, SyntaxError, TypeError, AttributeError) as error:
        raise ValueError(f"the annotation {parameter.annotation!r} cannot be evaluated: {error}") from error


def _annotated(annotation: object, metadata: tuple[object, ...]) -> dict[str, Any] | None:
    # "model:patch_tokens" is a model with this fact.
    wanted = dict(item.partition(":")[::2] for item in metadata if isinstance(item, str))
    markers = list(wanted)
    if unknown := [marker for marker in markers if marker not in MARKERS]:
        raise ValueError(f"the marker {unknown[0]!r} is unknown; allowed: {', '.join(MARKERS)}")
    if "system" in markers:
        return None
    kind = next((kind for kind in REFERRED if kind in markers), None)
    if kind is not None and typing.get_origin(annotation) is not list:
        having = {"having": wanted[kind]} if wanted[kind] else {}
        return {**REFERENCE, "component": kind, **having}
    schema = schema_of_annotation(annotation)
    if schema is None:
        return None
    if kind is not None:
        if annotation != list[str] or wanted[kind]:
            raise ValueError(f"a list of components is Annotated[list[str], {kind!r}]: of their names")
        schema["items"] = {**NAME, "component": kind}
    for marker in (one for one in markers if one not in REFERRED):
        _mark(schema, marker, wanted[marker])
    for item in metadata:
        if not isinstance(item, str):
            _constrain(schema, item)
    return schema


def _mark(schema: dict[str, Any], marker: str, fact: str) -> None:
    if marker in ("fact", "strength"):
        schema[marker] = fact or True
        return
    wanted = "number" if marker == "fraction" else "string"
    branches = [branch for branch in schema.get("anyOf", [schema]) if branch.get("type") == wanted]
    if not branches:
        raise ValueError(f"the marker {marker!r} is for a {wanted}")
    for branch in branches:
        branch[marker] = True
        if marker == "fraction":
            branch |= {"type": ["number", "string"], "pattern": PATTERN}


def _constrain(schema: dict[str, Any], item: object) -> None:
    if isinstance(item, annotated_types.GroupedMetadata):
        for part in item:
            _constrain(schema, part)
        return
    for constraint, attribute, for_numbers, for_lists, for_text in CONSTRAINTS:
        if not isinstance(item, constraint):
            continue
        keywords = {"integer": for_numbers, "number": for_numbers, "array": for_lists, "string": for_text}
        found = False
        for branch in schema.get("anyOf", [schema]):
            given = branch.get("type")
            keyword = keywords.get("number" if isinstance(given, list) else given)
            if keyword is not None:
                branch[keyword] = getattr(item, attribute)
                found = True
        if not found:
            raise ValueError(f"the bound {item!r} fits none of its types")


def _union(branches: list[dict[str, Any] | None]) -> dict[str, Any]:
    if any(branch is None for branch in branches):
        raise ValueError("a union with a part that the system sets")
    flat = [part for branch in branches if branch is not None for part in branch.get("anyOf", [branch])]
    return {"anyOf": flat}


def _list_choices(schema: dict[str, Any], listed: list[str]) -> None:
    branches = [branch for branch in schema.get("anyOf", [schema]) if branch.get("type") == "string"]
    if not branches:
        raise ValueError("CHOICES are for texts")
    branches[0]["enum"] = listed


def checked_default(schema: dict[str, Any], default: object) -> object:
    """A default as JSON; ValueError where the schema refuses it."""
    if "component" in schema and isinstance(default, str):
        return {"name": default, "params": {}}
    if "component" in schema and inspect.isfunction(default):
        return {"name": default.__name__, "params": {}}
    value = list(default) if isinstance(default, tuple) else default
    problems = Problems()
    checked = check(schema, value, problems, component=lambda _schema, reference, _loc, _report: reference)
    if problems.details:
        problem = problems.details[0]
        raise ValueError(f"the default {default!r} is refused: {path_text(problem.loc)} {problem.message}")
    return checked


def _shared_description(annotation: object) -> str | None:
    metadata = getattr(annotation, "__metadata__", ())
    texts = [item.documentation for item in metadata if isinstance(item, annotated_types.DocInfo)]
    return texts[-1] if texts else None


def _described_arguments(component: Callable[..., Any], function: Callable[..., Any]) -> dict[str, str]:
    notes: dict[str, str] = {}
    for owner in (function, component):
        lines = (inspect.getdoc(owner) or "").partition("\nArgs:\n")[2].splitlines()
        name = ""
        for line in lines:
            indent = len(line) - len(line.lstrip())
            if line.strip() and indent == 0:
                break
            match = ARGUMENT_LINE.match(line.strip())
            if match and indent <= 4:
                name = match[1]
                notes[name] = match[2]
            elif line.strip() and name:
                notes[name] += " " + line.strip()
    return notes
