"""`assay keys`: makes, lists and revokes API keys, over HTTP (scope `admin`) or in the database itself.

With `--state` it needs no key: access to the database is control anyway, and the first key needs it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Protocol

from pydantic import ValidationError

from assay.service.cli import output
from assay.service.cli.commands import OK, UsageError, connected
from assay.service.cli.profiles import chosen
from assay.service.client import KEY_VARIABLE, AssayClient
from assay.service.contract.errors import Unauthorized
from assay.service.contract.extras import require
from assay.service.contract.keys import Key, KeyRequest, NewKey
from assay.service.contract.problems import message_of
from assay.service.fitted_text import say, tell

NOWHERE = (
    f"which service? Either set {KEY_VARIABLE} to a key with the scope admin (and --url, or ASSAY_URL, to the"
    " service's address), or name the service's state folder with --state PATH, on its machine"
)


class Place(Protocol):
    """Where the keys are."""

    def keys(self) -> Sequence[Key]:
        """All keys, oldest first."""
        ...

    def create(self, request: KeyRequest) -> NewKey:
        """Makes a key."""
        ...

    def revoke(self, key_id: str) -> Key:
        """Ends a key."""
        ...


def create(options: argparse.Namespace) -> int:
    """Makes a key; its text alone is on standard output, this once."""
    request = _request(options)
    with _place(options) as place:
        made = place.create(request)
    if options.json:
        _say(output.json_text(made.model_dump(mode="json")))
        return OK
    _say(made.key)
    until = f", until {_day(made.expires_at)}" if made.expires_at is not None else ""
    note = (
        f"key {made.id} for tenant {made.tenant}: {', '.join(made.scopes)}{until}; it is shown only this once"
    )
    variable = "ASSAY_WORKER_KEY" if "worker" in made.scopes else KEY_VARIABLE
    tell(f"{note}\nuse it with: export {variable}=...")
    return OK


def list_all(options: argparse.Namespace) -> int:
    """Lists all keys, without their secrets."""
    with _place(options) as place:
        keys = place.keys()
    if options.json:
        _say(output.json_text([key.model_dump(mode="json") for key in keys]))
        return OK
    header = ["ID", "NAME", "SCOPES", "TENANT", "CREATED", "EXPIRES", "LAST USED", "STATE"]
    _say(output.table(header, [_cells(key) for key in keys]) if keys else "no keys")
    return OK


def revoke(options: argparse.Namespace) -> int:
    """Ends a key and its sessions."""
    with _place(options) as place:
        key = place.revoke(options.key_id)
    if options.json:
        _say(output.json_text(key.model_dump(mode="json")))
    else:
        say(f"key {key.id} ({output.printable(key.name)}) is revoked; its jobs stay")
    return OK


class Remote:
    """The keys of a service, over HTTP."""

    def __init__(self, client: AssayClient) -> None:
        self._client = client

    def keys(self) -> Sequence[Key]:
        """All keys."""
        return self._client.api_keys()

    def create(self, request: KeyRequest) -> NewKey:
        """Makes a key."""
        return self._client.create_key(
            request.name, request.scopes, tenant=request.tenant, expires_days=request.expires_days
        )

    def revoke(self, key_id: str) -> Key:
        """Ends a key; the list has its row."""
        before = [key for key in self._client.api_keys() if key.id == key_id]
        self._client.revoke_key(key_id)
        try:
            return next(key for key in self._client.api_keys() if key.id == key_id)
        except Unauthorized:  # it was the key that asks
            return before[0]


@contextmanager
def _place(options: argparse.Namespace) -> Iterator[Place]:
    """What goes first: `--state`, a key or an address, the environment's database, the profile in use."""
    named = os.environ.get("ASSAY_STATE") or os.environ.get("ASSAY_DATABASE_URL")
    said = options.url or options.profile or os.environ.get("ASSAY_URL") or os.environ.get(KEY_VARIABLE)
    if options.state is None and (said or (not named and chosen().profile)):
        if getattr(options, "init", False):
            raise UsageError("--init: goes with --state")
        tell(f"service: {chosen(options.url, options.profile).url}")
        with connected(options) as client:
            yield Remote(client)
    elif options.state is not None or named:
        require("`assay keys` on a service's own database", "service")
        from assay.service.tenants.keys_in_database import opened

        with opened(options.state, getattr(options, "init", None)) as place:
            yield place
    else:
        raise UsageError(NOWHERE)


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
        raise UsageError(f"--{option}: {message_of(wrong)} (given {wrong['input']!r})") from None


def _cells(key: Key) -> list[str]:
    state = "works"
    if key.revoked_at is not None:
        state = "revoked"
    elif key.expires_at is not None and datetime.fromisoformat(key.expires_at) <= datetime.now(UTC):
        state = "expired"
    times = [_day(key.created_at), _day(key.expires_at), _day(key.last_used_at)]
    return [key.id, output.printable(key.name), ",".join(key.scopes), key.tenant, *times, state]


def _day(text: str | None) -> str:
    return "never" if text is None else text[:10]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
