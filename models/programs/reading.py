"""Reads values out of untrusted JSON: each has the type that is expected, or the program is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

Value = TypeVar("Value")
# (name of an entry of the archive, most bytes that it may have) to its content.
ReadEntry = Callable[[str, int], bytes]
MAX_INTEGER = 2**63 - 1
SHOWN = 80
INFINITE = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


class UnsafeProgram(ValueError):
    """An exported program has something that is not taken; the message says what, and what to do."""


def refuse(reason: str) -> NoReturn:
    """Raises `UnsafeProgram`."""
    raise UnsafeProgram(reason)


def shown(value: object) -> str:
    """The beginning of a value, for messages."""
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."


def parse(raw: bytes, what: str) -> dict[str, Any]:
    """A JSON object; repeated keys and numbers out of range are refused."""
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
    """A field of an object; it must be there, with a value of this type."""
    if not isinstance(content, Mapping) or name not in content:
        refuse(f"the field {name!r} is missing in {shown(content)}")
    return of_type(content[name], kind, name)


def of_type(value: object, kind: type[Value], what: str) -> Value:
    """The value, if it has the type; a bool is no int here."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        refuse(f"{what!r} must be {kind.__name__}, not {shown(value)}")
    return value


def union(content: object, what: str) -> tuple[str, Any]:
    """The one entry of an object that is one of several things: (which, value)."""
    if not isinstance(content, dict) or len(content) != 1:
        refuse(f"{what!r} must be an object with one field, not {shown(content)}")
    return next(iter(content.items()))


def integer(value: object) -> int:
    """An integer that fits into 64 bits."""
    number = of_type(value, int, "an integer")
    if abs(number) > MAX_INTEGER:
        refuse(f"the integer {shown(number)} is too large")
    return number


def real(value: object) -> float:
    """A number, also as the texts that torch writes for those that JSON has not."""
    if isinstance(value, str) and value in INFINITE:
        return INFINITE[value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(integer(value))
    return of_type(value, float, "a number")


def listed(value: object, read: Callable[[Any], Value]) -> list[Value]:
    """A list, each item read."""
    return [read(item) for item in of_type(value, list, "a list")]
