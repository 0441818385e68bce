"""Is a JSON value of a type? Strict, unlike a type checker at a cast: no key too many, no key too few.

For values of strangers, too: a fault names the place and the type, and shows little of the value. Texts have
neither NUL nor lone surrogates, which databases refuse, and integers fit into 64 bits.
"""

from __future__ import annotations

import functools
import re
import types
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

UNIONS = (Union, types.UnionType)
MAX_INTEGER = 2**63 - 1
SHOWN = 60
FORBIDDEN = re.compile("[\0\ud800-\udfff]")


def faults(value: object, hint: Any, where: str = "", *, open_types: Collection[Any] = ()) -> Iterator[str]:
    """Every place of a JSON value, as `json.loads` returns it, where it is not of a type.

    The type is a TypedDict, or what annotations are made of; a TypedDict of `open_types` may have further
    keys, of any JSON value. `where` is the path to the value.
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if is_typeddict(hint):
        yield from _faults_of_keys(value, hint, where, open_types)
    elif origin in UNIONS:
        tried = [list(faults(value, one, where, open_types=open_types)) for one in arguments]
        if all(tried):
            yield from min(tried, key=len)
    elif origin is list and isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(item, arguments[0], f"{where}[{index}]", open_types=open_types)
    elif origin in (dict, Mapping) and isinstance(value, dict):
        for key, item in value.items():
            yield from _faults_of_text(key, f"{where}: a key")
            yield from faults(item, arguments[1], f"{where}.{key[:SHOWN]}", open_types=open_types)
    elif hint is Any:
        yield from _faults_of_any(value, where)
    elif not _is_plain(value, hint):
        yield f"{where}: {shown(value)} is not of {getattr(hint, '__name__', hint)}"
    else:
        yield from _faults_of_plain(value, where)


def shown(value: object) -> str:
    """A value in a message: the beginning of a text, a number, or only the type of the others."""
    if isinstance(value, str):
        return repr(value[:SHOWN])
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return repr(value) if abs(value) <= MAX_INTEGER else "an integer of more than 64 bits"
    return "a list" if isinstance(value, list) else "an object"


def _is_plain(value: object, hint: Any) -> bool:
    """Whether a value that has no parts is of a type, or one of the values of a Literal."""
    if get_origin(hint) is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(hint))
    if hint is float:  # JSON has one kind of number, and so have annotations
        return type(value) in (int, float)
    return type(value) is hint


def _faults_of_plain(value: object, where: str) -> Iterator[str]:
    if isinstance(value, str):
        yield from _faults_of_text(value, where)
    elif isinstance(value, int) and not -MAX_INTEGER <= value <= MAX_INTEGER:
        yield f"{where}: {shown(value)}"


def _faults_of_text(text: str, where: str) -> Iterator[str]:
    if FORBIDDEN.search(text):
        yield f"{where}: a text with NUL or half of a character"


def _faults_of_any(value: object, where: str) -> Iterator[str]:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += [*one, *one.values()]
        elif isinstance(one, list):
            waiting += one
        else:
            yield from _faults_of_plain(one, where)


@functools.cache
def _hints(hint: Any) -> dict[str, Any]:
    return get_type_hints(hint)


@functools.cache
def keys_of(hint: Any) -> tuple[set[str], set[str]]:
    """The keys that a TypedDict must have, and the keys that it may have."""
    hints = get_type_hints(hint, include_extras=True)
    # Annotations that are text hide NotRequired from __required_keys__.
    required = {key for key in hint.__required_keys__ if get_origin(hints[key]) is not NotRequired}
    return required, hints.keys() - required


def _faults_of_keys(value: object, hint: Any, where: str, open_types: Collection[Any]) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {shown(value)} is no object"
        return
    required, _ = keys_of(hint)
    hints = _hints(hint)
    yield from (f"{where}: lacks {key}" for key in sorted(required - value.keys()))
    for key, item in value.items():
        if key in hints:
            yield from faults(item, hints[key], f"{where}.{key}", open_types=open_types)
        elif hint in open_types:
            yield from _faults_of_text(key, f"{where}: a key")
            yield from _faults_of_any(item, f"{where}.{key[:SHOWN]}")
        else:
            yield f"{where}: {shown(key)} is unknown to {hint.__name__}"
