"""A duty that one process does for all, with an eye on the database's clock.

Leases and deadlines are times of that clock. Its jump must neither end every lease at once nor make leases
endless, so the process that expires leases compares it with a clock of its machine that cannot jump. Its own
clock also tells whether the holder is silent: after a jump, every duty would seem over.
"""

from __future__ import annotations

import logging
import time

from assay.service.store.fleet import lease_owner
from assay.service.store.fleet.clock_marks import ClockMark
from assay.service.store.fleet.workers import DutyRow
from assay.service.store.store import Store

log = logging.getLogger(__name__)
JUMP_SECONDS = 10.0
LEASE_SECONDS = 90.0


class Silence:
    """For how long a duty's holder has been silent."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._seen: DutyRow | None = None
        self._since = 0.0

    @property
    def of(self) -> DutyRow | None:
        """The duty as it last changed, if its holder is silent."""
        return self._seen if time.monotonic() - self._since > self._seconds else None

    def look(self, store: Store) -> bool:
        """Whether the duty is free, or its holder is silent. OperationalError: no database."""
        found = store.workers.duty(self._name)
        self.note(found)
        return found.worker is None or self.of is not None

    def note(self, found: DutyRow) -> bool:
        """Takes the duty as it is now; returns whether it has changed."""
        before = self._seen
        changed = before is None or (before.worker, before.until) != (found.worker, found.until)
        if changed:
            self._seen, self._since = found, time.monotonic()
        return changed


class Duty:
    """A process's claim to the duty `name`.

    `seconds`: silence after which another process takes it (at once from a dead process of this machine).
    `lease_seconds`: length of leases that begin again after a jump. `at`: the database's time when this
    process last had the duty and the clock was right; what is over is judged by it, as the clock may jump
    since.
    """

    def __init__(self, name: str, seconds: float, lease_seconds: float = LEASE_SECONDS) -> None:
        self._name = name
        self._seconds = seconds
        self._lease_seconds = lease_seconds
        self._me = lease_owner.worker_id(0)
        self._silence = Silence(name, seconds)
        self._clock: ClockMark | None = None
        self._right: ClockMark | None = None  # of the last look, if this process had the duty
        self.at = 0.0

    def held(self, store: Store) -> bool:
        """Takes or keeps the duty, and says whether this process has it; if so, looks at the clock.

        A jump since the last mark of this boot is found too, whichever process made it, or since the previous
        holder was heard of. Raises OperationalError: no database.
        """
        dead, silent = lease_owner.is_dead, self._silence.of
        found = store.workers.lead(self._name, self._me, self._seconds, dead, silent, self._right)
        before, mine = self._right or self._clock, found.present
        if self._right is None and found.mark is not None and found.mark.boot == mine.boot:
            before = found.mark
        changed = self._silence.note(found)
        leads = found.worker == self._me
        if leads and before is not None:
            elapsed = mine.monotonic - before.monotonic
            jump = mine.at - before.at - elapsed
            if abs(jump) >= JUMP_SECONDS:
                log.warning("the database's clock jumped by %.0f s: all leases begin again", jump)
                # The last right look by the new clock; a short jump within a long time may have come later.
                begun = before.at + (max(jump, elapsed) if jump > 0 else jump)
                store.workers.reset_clock(jump, self._lease_seconds, begun, mine)
        if changed:  # not before: a jump that could not be put right is found again
            self._clock = mine
        self._right = mine if leads else None
        self.at = mine.at
        return leads

    def stand_by(self, store: Store) -> None:
        """Leaves the duty to others, but looks at the clock. Raises OperationalError: no database."""
        self.release(store)
        self._clock = store.workers.duty(self._name).present

    def release(self, store: Store) -> None:
        """Leaves the duty to others at once; without a database (OperationalError), after its silence."""
        self._clock = self._right = None
        store.workers.resign(self._name, self._me)
