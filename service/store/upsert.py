"""Insert, or replace what has the same key."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(connection: Connection, table: Table, values: dict[str, Any]) -> None:
    """Writes a row; all columns of an existing row with the same primary key are replaced."""
    key = list(table.primary_key.columns)
    rest = {name: value for name, value in values.items() if name not in {column.name for column in key}}
    if connection.dialect.name == "sqlite":
        lite = sqlite.insert(table).values(**values)
        connection.execute(lite.on_conflict_do_update(index_elements=key, set_=rest))
    else:
        post = postgresql.insert(table).values(**values)
        connection.execute(post.on_conflict_do_update(index_elements=key, set_=rest))
