"""What the service says of itself while it is struck: `/readyz`, messages of jobs, lines of logs."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import psycopg

from assay.service.contract.errors import AssayError
from assay.service.store.fleet import lease_owner
from tests.storm.cluster import Cluster


class Evidence:
    """Looks for a text that names a fault.

    Args:
        cluster: where it looks.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clients = cluster.clients()
        self._duty = ""

    def close(self) -> None:
        """End the connections."""
        for client in self._clients:
            client.close()

    def ready(self) -> bool:
        """Whether an API process answers and reaches the database."""
        return any(client.ready() for client in self._clients)

    def first_is_ready(self) -> bool:
        """The same of the first API process."""
        return self._clients[0].ready()

    def readiness(self) -> dict[str, Any]:
        """The body of `/readyz` of the first API process that answers; empty without one."""
        for client in self._clients:
            try:
                answer = httpx.get(f"{client.url}/readyz", timeout=10, trust_env=False)
            except httpx.HTTPError:
                continue
            if answer.status_code == httpx.codes.OK:
                return dict(answer.json())
        return {}

    def in_readiness(self, field: str, pattern: str) -> str:
        """A key of a field of `/readyz` that matches; empty without one."""
        return next((key for key in self.readiness().get(field, {}) if re.search(pattern, key)), "")

    def in_job_messages(self, pattern: str) -> str:
        """The message of a running job over HTTP that matches; empty without one."""
        for client in self._clients:
            try:
                found = [job.message for job in client.jobs(state="running")]
            except AssayError:
                continue
            return next((message for message in found if re.search(pattern, message)), "")
        return ""

    def in_events(self, pattern: str) -> str:
        """What an event of a job says, as JSON, that matches; empty without one."""
        query = "SELECT data FROM events WHERE type IN ('log', 'end') AND data ~ %s ORDER BY at DESC LIMIT 1"
        return self._one(query, pattern)

    def in_logs(self, name: str, pattern: str) -> list[str]:
        """Lines that match, of the logs whose names match."""
        return [
            line
            for path in sorted(self._cluster.logs.glob(name))
            for line in path.read_text(errors="replace").splitlines()
            if re.search(pattern, line)
        ]

    def reaper(self) -> str:
        """The worker that has the duty of the reaper; empty without one."""
        return self._one("SELECT worker FROM duties WHERE name = %s", "reaper")

    def watches_clock(self) -> bool:
        """Whether the leading reaper, a living process, has swept since the last look of this kind."""
        before = self._duty
        self._duty = self._one("SELECT worker || ' ' || until FROM duties WHERE name = %s", "reaper")
        worker = self._duty.partition(" ")[0]
        swept = self._duty != before and worker == before.partition(" ")[0]
        return swept and bool(worker) and not lease_owner.is_dead(worker)

    def losses(self) -> int:
        """Shards that were taken from their workers so far."""
        return int(self._one("SELECT coalesce(sum(losses), 0) FROM shards WHERE %s = ''", "") or 0)

    def online(self, digest: str) -> int:
        """Workers of an identity that can take shards."""
        query = "SELECT count(*) FROM workers WHERE identity = %s AND devices > 0"
        return int(self._one(query, digest) or 0)

    def outdated(self, digest: str) -> set[str]:
        """Jobs that are not done and were planned by another identity."""
        query = (
            "SELECT id, plan FROM jobs WHERE kind = 'evaluate' AND state <> 'succeeded' AND plan IS NOT NULL"
        )
        try:
            with psycopg.connect(self._cluster.url) as connection:
                rows = connection.execute(query).fetchall()
        except psycopg.OperationalError:
            return set()
        return {row[0] for row in rows if json.loads(row[1])["identity"]["digest"] != digest}

    def _one(self, query: str, value: str) -> str:
        try:
            with psycopg.connect(self._cluster.url) as connection:
                row = connection.execute(query, (value,)).fetchone()
        except psycopg.OperationalError:
            return ""
        return "" if row is None else str(row[0])
