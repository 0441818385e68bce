"""API keys in the service's own database, for `assay keys --state`; needs the service's packages."""

from __future__ import annotations

import getpass
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy import inspect, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError

from assay.service.cli.commands import UsageError
from assay.service.contract.keys import Key, KeyRequest, NewKey
from assay.service.contract.times import iso_or_none
from assay.service.fitted_text import tell
from assay.service.store.audit import Actor
from assay.service.store.connections import Connections, wrong_settings
from assay.service.store.database import Database
from assay.service.store.rows import KeyRow
from assay.service.store.store import Store, open_store

DAY_SECONDS = 86400
TABLE_OF_MIGRATIONS = "alembic_version"


class Direct:
    """The keys in a database; what is done is audited as the work of the machine's operator."""

    def __init__(self, store: Store, by: Actor) -> None:
        self._store = store
        self._by = by

    def keys(self) -> Sequence[Key]:
        """All keys."""
        return [_key(row) for row in self._store.keys.list()]

    def create(self, request: KeyRequest) -> NewKey:
        """Makes a key."""
        days = request.expires_days
        row, text = self._store.keys.create(
            request.name,
            request.scopes,
            tenant=request.tenant,
            expires_seconds=None if days is None else days * DAY_SECONDS,
            by=self._by,
        )
        return NewKey(**_key(row).model_dump(), key=text)

    def revoke(self, key_id: str) -> Key:
        """Ends a key."""
        return _key(self._store.keys.revoke(key_id, by=self._by))


@contextmanager
def opened(state: Path | None, may_make: bool | None) -> Iterator[Direct]:
    """The keys in a state folder's database, which is made if missing where `may_make`, None for never."""
    given: dict[str, Any] = {} if state is None else {"state": Path(state)}
    try:
        settings = Connections(**given)
    except (ValidationError, SettingsError) as error:
        raise UsageError("; ".join(wrong_settings(error))) from None
    try:
        with _opened(settings, may_make) as store:
            tell(f"database: {_shown(settings)}")  # A folder is easily mistaken for another.
            yield Direct(store, _operator())
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        raise UsageError(f"the database cannot be used (is it there, and migrated?): {reason}") from None


def _opened(settings: Connections, may_make: bool | None) -> Store:
    try:
        url = make_url(settings.database)
        file = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
        there = file is None or file.is_file()  # The file before all else: opening it would make it.
        if not may_make and not (there and _has_tables(Database(settings.database))):
            raise UsageError(_missing(settings, may_make))
        # In distributed mode a separate step makes the tables before everything else starts.
        return open_store(settings.database, migrate=settings.mode == "embedded")
    except (ValueError, ArgumentError) as error:
        raise UsageError(f"ASSAY_DATABASE_URL: {error}") from None


def _has_tables(database: Database) -> bool:
    try:
        with database.reading() as connection:
            return inspect(connection).has_table(TABLE_OF_MIGRATIONS)
    finally:
        database.close()


def _missing(settings: Connections, may_make: bool | None) -> str:
    if settings.mode == "distributed":
        return (
            f"the database {_shown(settings)} has no tables: run `python -P -m assay.service.migrate` first"
        )
    start = f"start the service there first (assay serve --state {shlex.quote(str(settings.state))})"
    other = "" if may_make is None else ", or have it made with --init"
    return f"there is no database of Assay at {_shown(settings)}: {start}{other}"


def _shown(settings: Connections) -> str:
    return make_url(settings.database).render_as_string(hide_password=True)


def _operator() -> Actor:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        user = str(os.getuid())
    return Actor(request=f"assay keys by {user}"[:80])


def _key(row: KeyRow) -> Key:
    times = {name: iso_or_none(at) for name, at in vars(row).items() if name.endswith("_at")}
    return Key(**vars(row) | times)
