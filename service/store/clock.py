"""The database's clock, so that leases mean the same on every process and machine."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Double
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement


class Now(FunctionElement[float]):
    """SQL for the present moment in unix seconds (float, milliseconds or better)."""

    name = "now_seconds"
    type = Double()
    inherit_cache = True


# Julian day 2440587.5 is 1970-01-01T00:00Z. `unixepoch('subsec')` needs SQLite 3.42.
@compiles(Now, "sqlite")
def _sqlite(element: Now, compiler: SQLCompiler, **options: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


# clock_timestamp(), not now(): a transaction that waited for a lock must not write a stale lease.
@compiles(Now, "postgresql")
def _postgresql(element: Now, compiler: SQLCompiler, **options: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


def now() -> Now:
    """The present in unix seconds of the database's clock, as an SQL expression."""
    return Now()
