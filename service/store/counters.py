"""What workers have counted: sums over all workers and for ever, as Prometheus wants its counters.

They are no sums over rows: a deleted job would make those fall, and whoever watches a rate would take that
for a restart from zero and see a burst that never was.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy.dialects import postgresql, sqlite

from assay.service.store.database import Database
from assay.service.store.tables import counters

# Upper bounds of the histogram of shard lengths, in seconds; a plan aims at minutes.
SHARD_BOUNDS = (1, 2, 5, 10, 30, 60, 120, 240, 480, 900, 1800, 3600, 7200, 14400, 43200, 86400)
# A counter's name, and its labels with their values.
Key = tuple[str, tuple[tuple[str, str], ...]]


class Counters:
    """Sums by name and labels. Every method is one short transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, amounts: Mapping[Key, float]) -> None:
        """Adds to some counters; those that are new start from zero.

        An answer that is lost on its way makes the caller add twice: these are numbers for people.
        """
        if not amounts:
            return
        # In one order for all: two transactions must never wait for each other's rows.
        rows = sorted((name, _text(labels), float(value)) for (name, labels), value in amounts.items())
        values = [{"name": name, "labels": labels, "value": value} for name, labels, value in rows]
        with self._database.writing() as connection:
            insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
            statement: Any = insert(counters)
            added = {"value": counters.c.value + statement.excluded.value}
            key = [counters.c.name, counters.c.labels]
            connection.execute(statement.on_conflict_do_update(index_elements=key, set_=added), values)


def _text(labels: tuple[tuple[str, str], ...]) -> str:
    return json.dumps(dict(labels), sort_keys=True, separators=(",", ":"))
