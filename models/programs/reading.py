"""Typed reads of untrusted JSON: each value has the expected type, or the program is rejected."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

Value = TypeVar("Value")
# Maps (name of an archive entry, max bytes) to its content.
ReadEntry = Callable[[str, int], bytes]
MAX_INTEGER = 2**63 - 1
SHOWN = 80
INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


class UnsafeProgram(ValueError):
    """An exported program has unsupported content; the message says what, and what to do."""


def refuse(reason: str) -> NoReturn:
    """Raises `UnsafeProgram`."""
    raise UnsafeProgram(reason)


def shown(value: object) -> str:
    """Truncated value for messages."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def parse(raw: bytes, what: str) -> dict[str, Any]:
    """A JSON object; repeated keys and numbers out of range are rejected."""
    try:
        content = json.loads(raw, object_pairs_hook=_unrepeated)
    except (ValueError, RecursionError) as error:
        refuse(f"its {what} is no JSON: {str(error)[:SHOWN]}")
    if not isinstance(content, dict):
        refuse(f"its {what} is no JSON object")
    return content


def _unrepeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


def field(content: object, name: str, kind: type[Value]) -> Value:
    """Required field of an object, with a value of this type."""
    if not isinstance(content, Mapping) or name not in content:
        refuse(f"the field {name!r} is missing in {shown(content)}")
    return of_type(content[name], kind, name)


def of_type(value: object, kind: type[Value], what: str) -> Value:
    """The value, if it has the type; a bool is no int here."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        refuse(f"{what!r} must be {kind.__name__}, not {shown(value)}")
    return value


def union(content: object, what: str) -> tuple[str, Any]:
    """Single entry of a tagged union: (tag, value)."""
    if not isinstance(content, dict) or len(content) != 1:
        refuse(f"{what!r} must be an object with one field, not {shown(content)}")
    return next(iter(content.items()))


def integer(value: object) -> int:
    """Integer within 64 bits."""
    number = of_type(value, int, "an integer")
    if abs(number) > MAX_INTEGER:
        refuse(f"the integer {shown(number)} is too large")
    return number


def real(value: object) -> float:
    """Number, or one of torch's texts for numbers that JSON lacks."""
    if isinstance(value, str) and value in INFINITE:
        return INFINITE[value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(integer(value))
    return of_type(value, float, "a number")


def listed(value: object, read: Callable[[Any], Value]) -> list[Value]:
    """List with each item read."""
    return [read(item) for item in of_type(value, list, "a list")]
