"""Rows of a store's tables, read and changed behind its back."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select, update

from assay.service.store.columns import metadata
from assay.service.store.store import Store


def everything(store: Store) -> str:
    """All that the database holds, as text."""
    with store._database.reading() as connection:
        rows = [connection.execute(select(table)).all() for table in metadata.sorted_tables]
    return repr(rows)


def change(store: Store, table: Any, **values: Any) -> None:
    with store._database.writing() as connection:
        connection.execute(update(table).values(**values))
