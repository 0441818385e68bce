"""The one form of a JSON value that hashes and signatures are of (RFC 8785)."""

from __future__ import annotations

from typing import Any

import rfc8785

MAX_INTEGER = 2**53 - 1  # JSON readers may lose larger ones (RFC 8785, appendix D): written as texts.


def canonical(value: Any) -> bytes:
    """A value's JSON in its one form: equal bytes in every language. ValueError: NaN, lone surrogates."""
    return rfc8785.dumps(_portable(value))


def _portable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _portable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_portable(item) for item in value]
    if isinstance(value, int) and abs(value) > MAX_INTEGER:
        return str(value)
    return value
