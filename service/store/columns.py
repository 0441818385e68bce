"""Column types that mean the same on SQLite and PostgreSQL."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Collection
from typing import Any, TypeAlias

from sqlalchemy import Connection, Dialect, MetaData, Table, Text
from sqlalchemy import text as sql
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeDecorator

from assay.service.contract.records import Columns, OutcomeExtra

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_name)s_key",
        "ix": "%(table_name)s_%(column_0_name)s_idx",
    }
)

COLUMNS_START = '{"columns":{'
STEP_BYTES = 2**14  # of a payload that are inflated at once
UNSTORABLE = re.compile("[\0\ud800-\udfff]")
FLOAT_TAG = "$float"  # JSON has no NaN or infinity: they become {"$float": "nan" | "inf" | "-inf"}.
SeenCells: TypeAlias = tuple[str, list[Any]]  # a column as text, and its cells


def storable(text: str) -> str:
    """The text with characters that no database can hold (NUL, lone surrogates) replaced by U+FFFD."""
    return UNSTORABLE.sub("\ufffd", text)


class PlainText(TypeDecorator[str]):
    """Text from a user or an exception, with arbitrary characters."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Makes the text storable."""
        return None if value is None else storable(value)


# PostgreSQL would sort by the cluster's language; ids sort by their bytes, as in SQLite.
Identifier = PlainText().with_variant(PlainText(collation="C"), "postgresql")


class Json(TypeDecorator[Any]):
    """A JSON value as text: `jsonb` would reorder keys and refuse NUL in strings; NaN is refused."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Writes JSON in ASCII; None becomes NULL."""
        return None if value is None else json.dumps(value, allow_nan=False, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Reads the JSON back."""
        return None if value is None else json.loads(value)


def where(condition: str) -> dict[str, Any]:
    """The condition of a partial index, for both engines."""
    return {"postgresql_where": sql(condition), "sqlite_where": sql(condition)}


def pack(columns: Columns, extra: OutcomeExtra) -> bytes:
    """Compresses an outcome's columns and extra values; TypeError for what JSON does not know."""
    value = {"columns": columns, "extra": extra}
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(_marked(value), allow_nan=False, separators=(",", ":"))
    return zlib.compress(text.encode("ascii"))


def unpack(payload: bytes) -> tuple[Columns, OutcomeExtra]:
    """Reads back what `pack` wrote: columns and extra values."""
    value = json.loads(zlib.decompress(payload), object_hook=_unmarked)
    return value["columns"], value["extra"]


def unpack_columns(payload: bytes, names: Collection[str], seen: SeenCells | None = None) -> Columns:
    """Some of the columns that `pack` wrote; it reads no further than these, in a fraction of the time.

    `seen`: a column's text and cells, which are taken where a column has this text.
    """
    packed = _Packed(payload)
    if not packed.text.startswith(COLUMNS_START):
        columns, _ = unpack(payload)
        return {name: columns[name] for name in names if name in columns}
    found: Columns = {}
    wanted, place = set(names), len(COLUMNS_START)
    while wanted - found.keys():
        if (column := _column(packed.text, place, wanted, seen)) is None:
            if not packed.more():
                raise ValueError("the outcome of a shard is damaged")
            continue
        name, cells, place = column
        if not place:
            break
        if cells is not None and name in wanted:
            found[name] = cells
    return found


def seen_cells(cells: list[Any]) -> SeenCells:
    """Cells with their text as `pack` writes it."""
    return json.dumps(cells, separators=(",", ":")), cells


class _Packed:
    """The text of a payload, as far as it has been inflated."""

    def __init__(self, payload: bytes) -> None:
        self._inflater, self._rest, self.text = zlib.decompressobj(), payload, ""
        self.more()

    def more(self) -> bool:
        """Inflates a step more; False at the end."""
        if self._inflater.eof:
            return False
        part = self._inflater.decompress(self._rest, STEP_BYTES)
        self._rest = self._inflater.unconsumed_tail
        self.text += part.decode("ascii")
        return bool(part)


def _column(
    text: str, place: int, names: Collection[str], seen: SeenCells | None
) -> tuple[str, list[Any] | None, int] | None:
    """Name, cells and end of the column at a place; no cells where it is passed over, end 0 behind the last.

    None: the text ends too early.
    """
    if place >= len(text):
        return None
    if text[place] == "}":
        return "", None, 0
    try:
        name, start = DECODER.raw_decode(text, place + (text[place] == ","))
        start += 1  # the colon
        if seen is not None and seen[0].startswith(text[start : start + len(seen[0])]):
            end = start + len(seen[0])
            return (name, seen[1], end) if end <= len(text) else None
        if not (end := text.find("]", start) + 1):
            return None
        # Brackets within the cells: of lists, or of texts.
        plain = not any(text.find(sign, start + 1, end) >= 0 for sign in '"[{')
        if plain and name not in names:
            return name, None, end
        return name, *DECODER.raw_decode(text, start)
    except json.JSONDecodeError:
        return None


def _marked(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else {FLOAT_TAG: repr(value)}
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(item) for item in value]
    return value


def _unmarked(value: dict[str, Any]) -> Any:
    return float(value[FLOAT_TAG]) if value.keys() == {FLOAT_TAG} else value


DECODER = json.JSONDecoder(object_hook=_unmarked)


def upsert(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    """Writes a row, or replaces all columns of the row with this primary key."""
    key = list(table.primary_key.columns)
    rest = {name: value for name, value in values.items() if name not in {column.name for column in key}}
    statement = own_insert(connection, table).values(**values)
    connection.execute(statement.on_conflict_do_update(index_elements=key, set_=rest))


def own_insert(connection: Connection, table: Table) -> Any:
    """The INSERT of the database at hand, which has `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return (sqlite if connection.dialect.name == "sqlite" else postgresql).insert(table)
