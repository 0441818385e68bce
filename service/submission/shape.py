"""The shape of a job spec: fields, types and bounds, as the classes in `specs` have them.

Pydantic checks the same classes, but stops being clear where a field may have several forms; so its JSON
Schemas are checked here, with the messages and defaults of every other check.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from assay.service.catalog.parameters import check
from assay.service.catalog.schema_text import Schema
from assay.service.contract.problems import Loc, Report, nearest
from assay.service.contract.specs import EvaluateSpec, EvaluationSpec, TrainSpec

SPECS: dict[str, type[TrainSpec] | type[EvaluateSpec]] = {"train": TrainSpec, "evaluate": EvaluateSpec}
MAX_DEPTH = 32


def check_shape(body: object, report: Report) -> dict[str, Any]:
    """The body with the defaults of its shape, less the fields that are wrong.

    Raises:
        InvalidSpec: it is not an object, or nested too deeply to say more.
    """
    if _deeper_than(body, MAX_DEPTH):
        report.add((), f"must not be nested deeper than {MAX_DEPTH} levels")
    elif not isinstance(body, dict):
        report.add((), "must be a JSON object", given=body, allowed="an object")
    report.raise_if_any()
    assert isinstance(body, dict)
    kind = body.get("kind")
    if isinstance(kind, str) and kind in SPECS:
        schema = _schema(kind)
    else:
        message = "must be one of train, evaluate" if "kind" in body else "is required"
        report.add(("kind",), message, given=kind, allowed=list(SPECS), nearest=nearest(kind, SPECS))
        schema = _any_kind()
    shape: dict[str, Any] = check(schema, body, report)
    return shape


def check_evaluation_shape(item: object, report: Report, loc: Loc) -> dict[str, Any]:
    """One item of a suite with the defaults of its shape."""
    evaluation: dict[str, Any] = check(_evaluation_schema(), item, report, loc)
    return evaluation


@cache
def _evaluation_schema() -> Schema:
    return EvaluationSpec.model_json_schema()


@cache
def _schema(kind: str) -> Schema:
    return SPECS[kind].model_json_schema()


@cache
def _any_kind() -> Schema:
    """What can be said of a body whose kind is unknown: the fields of all kinds, none of them required."""
    merged: dict[str, Any] = {"type": "object", "additionalProperties": False, "$defs": {}, "properties": {}}
    for kind in SPECS:
        merged["$defs"] |= _schema(kind)["$defs"]
        merged["properties"] |= _schema(kind)["properties"]
    merged["properties"]["kind"] = {}
    return merged | {"required": ["model", "data"]}


def _deeper_than(value: object, limit: int) -> bool:
    """Without recursion, so that no depth is too much for the check itself."""
    level = [value]
    for _ in range(limit + 1):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return True
