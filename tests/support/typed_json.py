"""Is a JSON value of a type? Strict, unlike a type checker at a cast: no key too many, no key too few."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

UNIONS = (Union, types.UnionType)


def faults(value: object, hint: Any, where: str = "") -> Iterator[str]:
    """Every place of a JSON value where it is not of a type.

    Args:
        value: As `json.loads` returns it.
        hint: A TypedDict, or what annotations are made of.
        where: The path to the value.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        yield from _faults_of_keys(value, hint, where)
    elif origin in UNIONS:
        tried = [list(faults(value, one, where)) for one in arguments]
        if all(tried):
            yield from min(tried, key=len)
    elif origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(item, arguments[0], f"{where}[{index}]")
    elif origin in (dict, Mapping) and isinstance(value, dict):
        for key, item in value.items():
            yield from faults(item, arguments[1], f"{where}.{key}")
    elif hint is not Any and not _is_plain(value, hint):
        yield f"{where}: {value!r} is not of {hint}"


def _is_plain(value: object, hint: Any) -> bool:
    """Whether a value that has no parts is of a type, or one of the values of a Literal."""
    if get_origin(hint) is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(hint))
    if hint is float:  # JSON has one kind of number, and so have annotations
        return type(value) in (int, float)
    return type(value) is hint


def keys_of(hint: Any) -> tuple[set[str], set[str]]:
    """The keys that a TypedDict must have, and those that it may have."""
    hints = get_type_hints(hint, include_extras=True)
    # Annotations that are text hide NotRequired from __required_keys__.
    required = {key for key in hint.__required_keys__ if get_origin(hints[key]) is not NotRequired}
    return required, hints.keys() - required


def _faults_of_keys(value: object, hint: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    required, _ = keys_of(hint)
    hints = get_type_hints(hint)
    yield from (f"{where}: lacks {key}" for key in sorted(required - value.keys()))
    for key, item in value.items():
        if key in hints:
            yield from faults(item, hints[key], f"{where}.{key}")
        else:
            yield f"{where}: {key} is unknown to {hint.__name__}"
