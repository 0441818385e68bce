"""A clock of one database that can be set, which PostgreSQL does not offer.

The store asks for `clock_timestamp()`. The database's search path finds a function of that name before the
server's own; it adds an offset from a table.
"""

from __future__ import annotations

import psycopg

INSTALL = """
CREATE SCHEMA storm;
CREATE TABLE storm.clock (ahead interval NOT NULL);
INSERT INTO storm.clock VALUES ('0 s');
CREATE FUNCTION storm.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM storm.clock';
"""


def install(url: str, name: str) -> None:
    """Give a database, which no one has opened yet, such a clock; new tables are still made in `public`."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSTALL)
        connection.execute(f'ALTER DATABASE "{name}" SET search_path = public, storm, pg_catalog')


def set_ahead(url: str, seconds: float) -> None:
    """Let the clock go so many seconds ahead of the machine's."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE storm.clock SET ahead = make_interval(secs => %s)", (seconds,))
