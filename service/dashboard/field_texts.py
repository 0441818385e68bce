"""Values of JSON as the texts of form fields, and back, by their JSON Schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from assay.service.catalog.schema_text import Schema, choices

INTEGER = re.compile(r"[+-]?\d{1,30}", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)


class _Absent:
    pass


ABSENT = _Absent()


def from_text(part: Schema, text: str) -> Any:
    """What a text means under a schema: ABSENT if empty; a text without meaning stays, for the validation."""
    text = text.strip()
    if not text:
        return ABSENT
    branches = part.get("anyOf", [part])
    for allowed in choices(part):
        if text == to_text(allowed):
            return allowed
    for branch in branches:
        value = _typed(branch, text)
        if value is not ABSENT:
            return value
    return text


def to_text(value: Any) -> str:
    """A value as the text of its field; `from_text` reads it back."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = [to_text(item) for item in value]
        plain = all(text and text == text.strip() and "," not in text for text in texts)
        return ", ".join(texts) if plain and texts and texts[0][0] != "[" else json.dumps(value)
    return json.dumps(value)


def same(first: object, second: object) -> bool:
    """Whether two values of JSON are equal; 1.0 is 1, true is not."""
    return json.dumps(_uniform(first), sort_keys=True) == json.dumps(_uniform(second), sort_keys=True)


def _uniform(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_uniform(one) for one in value]
    return {key: _uniform(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def _typed(branch: Schema, text: str) -> Any:
    """The text as a value of the branch's type, ABSENT for another text."""
    kind = branch.get("type")
    if kind == "null" and text.lower() in ("null", "none"):
        return None
    if kind == "boolean" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind == "integer" and INTEGER.fullmatch(text):
        return int(text)
    if (kind == "number" or branch.get("fraction")) and NUMBER.fullmatch(text):
        number = int(text) if INTEGER.fullmatch(text) else float(text)
        return number if math.isfinite(number) else ABSENT
    if kind == "array":
        return _list(branch, text)
    return text if kind == "string" or (branch.get("fraction") and "/" in text) else ABSENT


def _list(branch: Schema, text: str) -> Any:
    if text.startswith("["):
        try:
            listed = json.loads(text)
        except (ValueError, RecursionError):
            return ABSENT
        return listed if isinstance(listed, list) else ABSENT
    items = branch.get("items", {})
    values = [from_text(items, one) for one in text.removesuffix(",").split(",")]
    if any(isinstance(value, str) for value in values) and items.get("type") in ("integer", "number"):
        return ABSENT
    return ["" if value is ABSENT else value for value in values]
