"""Keeps a measured outcome on disk until the database has it, or refuses it.

What was measured is never lost: the outcome is written to a file before it is recorded, and the file
goes only when the store has answered. Files that a killed worker left are recorded at its next start.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from pathlib import Path

from service.store.rows import Claim, Finished, OutcomeRow
from service.store.session import Store
from workers import owner

log = logging.getLogger(__name__)


class Spool:
    """A folder of outcomes on their way to the store."""

    def __init__(self, folder: Path, store: Store, identity: str) -> None:
        self._folder = folder
        self._store = store
        self._identity = identity
        folder.mkdir(parents=True, exist_ok=True)

    def record(self, claim: Claim, row: OutcomeRow) -> Finished | None:
        """Write the outcome down, then record it; None when the fence refuses it.

        Raises:
            OperationalError: the database is away; `flush` tries again.
        """
        path = self._folder / f"{claim.shard_id}-{claim.fence}.json"
        body = {
            "owner": self._identity,
            "claim": dataclasses.asdict(claim),
            "outcome": dataclasses.asdict(row),
        }
        temporary = path.with_suffix(f".{os.getpid()}.part")
        temporary.write_text(json.dumps(body))
        temporary.replace(path)
        finished = self._store.shards.finish(claim, row)
        path.unlink(missing_ok=True)
        return finished

    def flush(self) -> None:
        """Record what this supervisor, or one that is dead, could not record.

        Raises:
            OperationalError: the database is still away.
        """
        for path in sorted(self._folder.glob("*.json")):
            try:
                body = json.loads(path.read_text())
            except FileNotFoundError:
                continue  # another supervisor of this machine was faster
            if body["owner"] != self._identity and not owner.is_dead(body["owner"]):
                continue
            claim, row = Claim(**body["claim"]), OutcomeRow(**body["outcome"])
            finished = self._store.shards.finish(claim, row)
            log.info("shard %s: outcome from disk %s", claim.shard_id, "recorded" if finished else "refused")
            path.unlink(missing_ok=True)
