"""Column types that mean the same on SQLite and PostgreSQL."""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator


def storable(text: str) -> str:
    """The text with what no database can hold (NUL, lone surrogates) replaced by U+FFFD."""
    return "".join("\ufffd" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in text)


class PlainText(TypeDecorator[str]):
    """Text that came from a user or from an exception, and may hold anything."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Makes the text storable."""
        return None if value is None else storable(value)


# PostgreSQL would sort by the cluster's language; ids sort by their bytes, as in SQLite.
Identifier = PlainText().with_variant(PlainText(collation="C"), "postgresql")


class Json(TypeDecorator[Any]):
    """A JSON value as text: key order and floats come back exactly; NaN is refused.

    Text and not the databases' own JSON types: PostgreSQL's `jsonb` reorders keys and refuses the
    NUL that a string may hold.
    """

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Writes JSON in ASCII; None becomes NULL."""
        return None if value is None else json.dumps(value, allow_nan=False, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Reads the JSON back."""
        return None if value is None else json.loads(value)
