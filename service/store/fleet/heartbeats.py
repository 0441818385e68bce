"""Heartbeats: a worker's row is written where what it says has changed; else only its time is.

A thousand workers say the same twice a minute, and their gauges may be many pages. The time of the row is its
version: where it is still the time that this process wrote, the row still has what this process wrote. Signs
of workers that wait are kept, and written together.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, case, delete, select, update
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
# Rows of workers are locked in one order.
KEPT = (
    select(workers.c.worker, workers.c.seen_at)
    .where(workers.c.worker.in_(bindparam("kept", expanding=True)))
    .order_by(workers.c.worker)
    .with_for_update()
)
SEEN_TOGETHER = (
    update(workers)
    .where(workers.c.worker.in_(bindparam("kept", expanding=True)))
    .values(seen_at=now())
    .returning(workers.c.worker, workers.c.seen_at)
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
        self._kept: dict[str, SignOfLife] = {}
        self._lock = threading.Lock()  # Of `_kept`
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

    def keep(self, sign: SignOfLife) -> None:
        """Keeps a sign that its worker `has_said` before, for the next `write_kept`."""
        with self._lock:
            self._kept[sign.worker] = sign

    def forget(self, worker: str) -> None:
        """Drops what is known and kept of a worker that ends."""
        self._known.pop(worker, None)
        with self._lock:
            self._kept.pop(worker, None)

    @property
    def are_kept(self) -> bool:
        """Whether signs wait for `write_kept`."""
        return bool(self._kept)

    def write_kept(self, connection: Connection) -> bool:
        """Records the kept signs, except of workers that were struck off; whether a row had other words."""
        with self._lock:
            kept, self._kept = self._kept, {}
        try:
            rows = {row.worker: row.seen_at for row in connection.execute(KEPT, {"kept": [*kept]})}
            same = [name for name, at in rows.items() if at == self._known.get(name, (b"", None))[1]]
            for row in connection.execute(SEEN_TOGETHER, {"kept": same}) if same else ():
                self._known[row.worker] = (kept[row.worker].digest, row.seen_at)
            others = sorted(rows.keys() - {*same})
            for worker in others:  # written by another process of the service
                self.write(connection, kept[worker])
            for worker in kept.keys() - rows.keys():
                self._known.pop(worker, None)
        except BaseException:
            with self._lock:
                self._kept = {**kept, **self._kept}
            raise
        return bool(others)

    def sweep(self, connection: Connection) -> None:
        """Forgets workers that have been silent for a day, at most once a minute."""
        if time.monotonic() - self._swept_at >= SWEEP_SECONDS:
            self._swept_at = time.monotonic()
            connection.execute(FORGOTTEN)


@cache
def _beaten(dialect: str) -> Any:
    """The statement that writes a worker's row, for an engine."""
    engine = sqlite if dialect == "sqlite" else postgresql
    new: Any = engine.insert(workers).values(seen_at=now(), begun_at=now())
    own = ("worker", "begun_at")
    kept = {column.name: new.excluded[column.name] for column in workers.columns if column.name not in own}
    # The time is the version of a row: two processes may write in one millisecond of SQLite's clock.
    again = new.excluded.seen_at == workers.c.seen_at
    kept["seen_at"] = case((again, workers.c.seen_at + 0.001), else_=new.excluded.seen_at)
    written = new.on_conflict_do_update(index_elements=[workers.c.worker], set_=kept)
    return written.returning(workers.c.seen_at)
