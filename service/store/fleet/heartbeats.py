"""Heartbeats: a worker's row is written where what it says has changed; else only its time is.

A thousand workers say the same twice a minute, and their gauges may be many pages. The time of the row is its
version: where it is still the time that this process wrote, the row still has what this process wrote.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, delete, update
from sqlalchemy.dialects import postgresql, sqlite

from assay.service.contract.fleet.release import release_names
from assay.service.contract.fleet.worker_records import Gauges
from assay.service.store.clock import now
from assay.service.store.columns import PlainText
from assay.service.store.tables import workers

FORGOTTEN_SECONDS = 86400
SWEEP_SECONDS = 60.0  # Between two looks for workers that are silent for so long
MAX_KNOWN = 10_000
FORGOTTEN = delete(workers).where(workers.c.seen_at < now() - FORGOTTEN_SECONDS)
SEEN_AGAIN = (
    update(workers)
    .where(
        workers.c.worker == bindparam("beating", type_=PlainText), workers.c.seen_at == bindparam("before")
    )
    .values(seen_at=now())
    .returning(workers.c.seen_at)
)


@dataclass(frozen=True)
class SignOfLife:
    """What a worker says of itself: columns of `workers`, and their digest."""

    values: Mapping[str, Any]
    digest: bytes

    @property
    def worker(self) -> str:
        """The worker's id."""
        return str(self.values["worker"])


def sign_of_life(
    worker: str,
    host: str,
    device_classes: Sequence[str],
    pid: int,
    gauges: Gauges | None,
    devices: int,
    name: str,
    identity: str,
) -> SignOfLife:
    """A sign of life, as `Workers.beat` explains it."""
    assert not isinstance(device_classes, str), "a sequence of device classes, not one"
    values: dict[str, Any] = {
        "worker": worker,
        "host": host,
        "device_classes": f",{','.join(device_classes)},",  # Commas around all: ",cpu," matches anywhere.
        "devices": devices,
        "pid": pid,
        "name": name,
        "identity": identity,
        "gauges": dict(gauges or {}),
    }
    return SignOfLife(values, hashlib.sha256(json.dumps(values).encode()).digest())


class Heartbeats:
    """What this process has last written of each worker; safe to use from several threads."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[bytes, float]] = {}  # Digests, and times by the database's clock
        self._swept_at = float("-inf")

    def has_said(self, sign: SignOfLife) -> bool:
        """Whether the worker's last sign of life was the same, so that it needs no other check."""
        known = self._known.get(sign.worker)
        return known is not None and known[0] == sign.digest

    def write(self, connection: Connection, sign: SignOfLife) -> bool:
        """Records a sign of life; whether it says something else than before."""
        before = self._known.get(sign.worker)
        if before is not None and before[0] == sign.digest:
            same = {"beating": sign.worker, "before": before[1]}
            seen_at = connection.execute(SEEN_AGAIN, same).scalar_one_or_none()
            if seen_at is not None:
                self._known[sign.worker] = (sign.digest, seen_at)
                return False
        names = release_names(sign.values["gauges"].get("code", {"version": None}))
        release = f",{','.join(names)}," if names else ""
        seen_at = connection.execute(
            _beaten(connection.dialect.name), {**sign.values, "release": release}
        ).scalar_one()
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[sign.worker] = (sign.digest, seen_at)
        return True

    def sweep(self, connection: Connection) -> None:
        """Forgets workers that have been silent for a day, at most once a minute."""
        if time.monotonic() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            connection.execute(FORGOTTEN)


@cache
def _beaten(dialect: str) -> Any:
    """The statement that writes a worker's row, for an engine."""
    new: Any = (sqlite if dialect == "sqlite" else postgresql).insert(workers).values(seen_at=now())
    kept = {column.name: new.excluded[column.name] for column in workers.columns if not column.primary_key}
    written = new.on_conflict_do_update(index_elements=[workers.c.worker], set_=kept)
    return written.returning(workers.c.seen_at)
