"""Reads a request body as strict JSON.

Stricter than `json.loads` where leniency would break something later: no NaN or infinities (they have
no JSON form on the way out), no numbers that overflow a float, no repeated keys (one would silently
win), no NUL or lone surrogates (PostgreSQL and UTF-8 refuse them), and a depth cap that is checked
before the recursive parser sees the text. The number of arrays and objects is capped with it.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from assay.service.contract.errors import MalformedJson
from assay.service.contract.problems import Loc, path_text, readable

MAX_INTEGER_DIGITS = 25
MAX_CONTAINERS = 20_000  # Arrays and objects together; the largest job, 500 evaluations, has a few thousand.

# A string counts as one token, also when it never ends, so that brackets in it don't count; the scan
# is linear because no branch can fail after it has consumed an opening quote.
_TOKENS = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_FORBIDDEN_CHARACTERS = re.compile("[\0\ud800-\udfff]")


def parse_json(raw: bytes, max_depth: int, max_containers: int = MAX_CONTAINERS) -> Any:
    """The value of a body, its numbers finite; MalformedJson if not strict JSON in UTF-8, or over a cap."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedJson(f"the body is not UTF-8: {error.reason} at byte {error.start}") from None
    # Most bodies have few brackets, also with the brackets of their texts.
    if text.count("[") + text.count("{") > min(max_depth, max_containers):
        _check_containers(text, max_depth, max_containers)
    numbers = _Numbers()
    try:
        value = json.loads(
            text,
            parse_constant=numbers.read_constant,
            parse_float=numbers.read_float,
            parse_int=numbers.read_integer,
            object_pairs_hook=_object_without_repeats,
        )
    except json.JSONDecodeError as error:
        raise MalformedJson(
            f"the body is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    if numbers.are_refused or "\\u" in text:  # Forbidden characters come by escapes alone
        check_values(value, ())
    return value


def _check_containers(text: str, max_depth: int, most: int) -> None:
    depth = containers = 0
    for token in _TOKENS.finditer(text):
        bracket = token.group()
        if bracket in "[{":
            depth += 1
            containers += 1
            if containers > most:
                raise MalformedJson(f"the body has too many arrays and objects; allowed: {most}")
            if depth > max_depth:
                raise MalformedJson(f"the body is nested too deeply; allowed: {max_depth} levels")
        elif bracket in "]}":
            depth -= 1


@dataclass(frozen=True)
class _Refused:
    """Takes the place of a number that is refused, until its place in the body is known."""

    message: str


class _Numbers:
    """Reads the numbers of a body."""

    def __init__(self) -> None:
        self.are_refused = False

    def read_constant(self, name: str) -> _Refused:
        return self._refuse(f"{name} is not JSON; allowed: finite numbers")

    def read_float(self, text: str) -> float | _Refused:
        value = float(text)
        if not math.isfinite(value):
            return self._refuse(f"the number {text[:40]} is too large; allowed: up to 1.8e308")
        return value

    def read_integer(self, text: str) -> int | _Refused:
        if len(text) > MAX_INTEGER_DIGITS:
            return self._refuse(
                f"an integer has {len(text)} characters ({text[:10]}...); allowed: up to {MAX_INTEGER_DIGITS}"
            )
        return int(text)

    def _refuse(self, message: str) -> _Refused:
        self.are_refused = True
        return _Refused(message)


def _object_without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise MalformedJson(f"the key {_printable(key)} is given twice in one object")
            seen.add(key)
    return members


def check_values(value: Any, loc: Loc) -> None:
    """Refuses, by MalformedJson, numbers and characters by their place. The depth has been checked."""
    if isinstance(value, _Refused):
        raise _refusal(loc, value.message)
    if isinstance(value, str):
        found = _FORBIDDEN_CHARACTERS.search(value)
        if found:
            raise _refusal(loc, f"a text contains U+{ord(found.group()):04X}, which cannot be stored")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            check_values(item, (*loc, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            check_values(key, loc)
            check_values(item, (*loc, readable(key)))


def _refusal(loc: Loc, message: str) -> MalformedJson:
    return MalformedJson(f"{path_text(loc)}: {message}" if loc else message)


def _printable(key: str) -> str:
    return ascii(key[:60])
