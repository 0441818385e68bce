"""`assay keys`: key management for the operator, in the database named by the ASSAY_ settings.

It needs no running service and no key: access to the database is control of the service anyway.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_settings import SettingsError
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from assay.service.cli import output
from assay.service.cli.commands import OK, UsageError
from assay.service.contract.keys import KeyRequest
from assay.service.store.connections import Connections, wrong_settings
from assay.service.store.rows import KeyRow

if TYPE_CHECKING:
    from assay.service.store.store import Store

DAY_SECONDS = 86400


def create(options: argparse.Namespace) -> int:
    """Makes a key; its text alone is on standard output, this once."""
    request = _request(options)
    days = request.expires_days
    with _store(options) as store:
        row, text = store.keys.create(
            request.name,
            request.scopes,
            tenant=request.tenant,
            expires_seconds=None if days is None else days * DAY_SECONDS,
        )
    if options.json:
        _say(output.json_text({**_values(row), "key": text}))
        return OK
    _say(text)
    until = f", until {_day(row.expires_at)}" if row.expires_at is not None else ""
    note = f"key {row.id} for tenant {row.tenant}: {', '.join(row.scopes)}{until}; it is shown only this once"
    sys.stderr.write(f"{note}\nuse it with: export ASSAY_KEY=...\n")
    return OK


def list_all(options: argparse.Namespace) -> int:
    """Lists all keys, without their secrets."""
    with _store(options) as store:
        rows = store.keys.list()
    if options.json:
        _say(output.json_text([_values(row) for row in rows]))
        return OK
    header = ["ID", "NAME", "SCOPES", "TENANT", "CREATED", "EXPIRES", "LAST USED", "STATE"]
    _say(output.table(header, [_cells(row) for row in rows]) if rows else "no keys")
    return OK


def revoke(options: argparse.Namespace) -> int:
    """Ends a key and its sessions."""
    with _store(options) as store:
        row = store.keys.revoke(options.key_id)
    if options.json:
        _say(output.json_text(_values(row)))
    else:
        _say(f"key {row.id} ({output.printable(row.name)}) is revoked; its jobs stay")
    return OK


def _request(options: argparse.Namespace) -> KeyRequest:
    given = {
        "name": options.name,
        "scopes": options.scope,
        "tenant": options.tenant,
        "expires_days": options.expires_days,
    }
    try:
        return KeyRequest.model_validate(given)
    except ValidationError as error:
        wrong = error.errors()[0]
        option = {"scopes": "scope"}.get(str(wrong["loc"][0]), str(wrong["loc"][0]).replace("_", "-"))
        raise UsageError(f"--{option}: {wrong['msg']} (given {wrong['input']!r})") from None


@contextmanager
def _store(options: argparse.Namespace) -> Iterator[Store]:
    given: dict[str, Any] = {} if options.state is None else {"state": Path(options.state)}
    try:
        settings = Connections(**given)
    except (ValidationError, SettingsError) as error:
        raise UsageError("; ".join(wrong_settings(error))) from None
    try:
        with _opened(settings) as store:
            # The current folder may easily differ from the service's.
            shown = make_url(settings.database).render_as_string(hide_password=True)
            sys.stderr.write(f"database: {shown}\n")
            yield store
    except DBAPIError as error:
        reason = " ".join(str(error.orig).split())
        raise UsageError(f"the database cannot be used (is it there, and migrated?): {reason}") from None


def _opened(settings: Connections) -> Store:
    # Imported here, because the other subcommands should not wait for the database's packages.
    from assay.service.store.store import open_store

    try:
        # In distributed mode a separate step makes the tables before everything else starts.
        return open_store(settings.database, migrate=settings.mode == "embedded")
    except ValueError as error:
        raise UsageError(f"ASSAY_DATABASE_URL: {error}") from None


def _values(row: KeyRow) -> dict[str, Any]:
    times = ("created_at", "expires_at", "revoked_at", "last_used_at")
    return {**vars(row), **{name: _iso(getattr(row, name)) for name in times}}


def _cells(row: KeyRow) -> list[str]:
    state = "works"
    if row.revoked_at is not None:
        state = "revoked"
    elif row.expires_at is not None and row.expires_at <= datetime.now(UTC).timestamp():
        state = "expired"
    times = [_day(row.created_at), _day(row.expires_at), _day(row.last_used_at)]
    return [row.id, output.printable(row.name), ",".join(row.scopes), row.tenant, *times, state]


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _day(seconds: float | None) -> str:
    return "never" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
