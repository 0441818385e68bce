"""Keeps a measured outcome on disk until the database has it, or refuses it.

No measurement is lost: an outcome's file is written before it is recorded, and deleted after the store has
answered.

All workers share the folder, and a restarted container is a new worker. So every worker, before it claims,
records outcomes left by others whose lease has run out: none is measured again. Two may record a file at
once: the fence admits one. An unreadable file is left for later.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from assay.service.store.fleet import lease_owner
from assay.service.store.rows import Claim, Finished, OutcomeRow
from assay.workers.supervision.ledger import LEDGER_AWAY, WorkLedger

log = logging.getLogger(__name__)
# The owner of an older file is cut off or stuck, even with a valid lease. Two machines' clocks may differ: an
# error does no harm.
ABANDONED_SECONDS = 120.0
SPOOL = "spool"  # in a state folder
LEFT = "ASSAY_LEFT_BEHIND"  # variable with the state folders of a box's earlier nodes


class Spool:
    """A folder of outcomes not yet in the store."""

    def __init__(self, folder: Path, ledger: WorkLedger, identity: str) -> None:
        self._folder = folder
        self._ledger = ledger
        self._identity = identity
        folder.mkdir(parents=True, exist_ok=True)

    def record(self, claim: Claim, row: OutcomeRow) -> Finished | None:
        """Write the outcome to disk, then record it; None when the fence refuses it."""
        path = self._folder / f"{claim.shard_id}-{claim.fence}.json"
        try:
            if not path.exists():  # else complete: called again, after the database was away
                self._write(path, claim, row)
        except OSError as error:  # a full disk must not stop the database
            log.warning("shard %s: outcome not kept on disk: %s", claim.shard_id, error)
        finished = self._ledger.finish(claim, row)
        _remove(path)
        return finished

    def flush(self) -> Iterator[tuple[Claim, Finished]]:
        """Record outcomes left by this or a dead supervisor; yields accepted outcomes."""
        for path in sorted(self._folder.glob("*.json")):
            try:
                entry = self._read(path)
                finished = self._finish(path, *entry) if entry is not None else None
            except FileNotFoundError:
                continue  # another supervisor was faster
            except LEDGER_AWAY:
                raise
            except OSError as error:  # may be momentary; the outcome may be intact
                log.warning("%s: cannot be read now: %s", path, error)
                continue
            except Exception:  # damaged, or of another version: must not block the others
                log.exception("%s: set aside, it cannot be recorded", path)
                _set_aside(path)
                continue
            if entry is None:
                continue
            log.info("%s: outcome from disk %s", path.name, "recorded" if finished else "refused")
            _remove(path)
            if finished is not None:
                yield entry[0], finished
        self._sweep()

    def _finish(self, path: Path, claim: Claim, row: OutcomeRow) -> Finished | None:
        """Records an entry; the shard of an outcome with a lost file goes back. Raises as the ledger."""
        try:
            return self._ledger.finish(claim, row)
        except FileNotFoundError as error:
            if not path.exists():
                raise
            name = Path(error.filename or "").name
            log.warning("%s: refused, its file %s is gone: the shard goes back", path.name, name)
            self._ledger.release(claim, f"a file of the outcome was lost on its worker: {name}")
            return None

    def _write(self, path: Path, claim: Claim, row: OutcomeRow) -> None:
        body = {
            "owner": self._identity,
            "claim": dataclasses.asdict(claim),
            "outcome": dataclasses.asdict(row),
        }
        temporary = path.with_suffix(f".{uuid.uuid4().hex}.part")
        try:
            temporary.write_text(json.dumps(body))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _read(self, path: Path) -> tuple[Claim, OutcomeRow] | None:
        """A file's claim and outcome; None when its owner is about to record it."""
        body = json.loads(path.read_text())
        whose, claim = body["owner"], body["claim"]
        left = whose == self._identity or lease_owner.is_dead(whose) or _old(path)
        if not left and not self._ledger.adrift(Claim(**claim)):
            return None
        return Claim(**claim), OutcomeRow(**body["outcome"])

    def _sweep(self) -> None:
        for path in self._folder.glob("*.part"):
            if _old(path):
                _remove(path)


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.warning("%s: cannot be removed now: %s", path, error)


def _set_aside(path: Path) -> None:
    try:
        path.replace(path.with_suffix(".bad"))
    except OSError as error:  # another worker was faster, or this one may not
        log.warning("%s: cannot be set aside: %s", path, error)


def _old(path: Path) -> bool:
    try:
        return time.time() - path.stat().st_mtime > ABANDONED_SECONDS
    except FileNotFoundError:
        return False
