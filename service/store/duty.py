"""A duty that one process does for all, with an eye on the database's clock.

Leases and deadlines are times of that clock. A jump of it must neither end every lease at once nor make them
endless, so whoever expires leases compares it with a clock of its own machine that cannot jump.
"""

from __future__ import annotations

import logging
import time

from assay.service.store import lease_owner
from assay.service.store.store import Store

log = logging.getLogger(__name__)
JUMP_SECONDS = 10.0
LEASE_SECONDS = 90.0


class Duty:
    """One process's claim to a duty.

    Args:
        name: of the duty.
        seconds: silence after which another process takes it; it is taken at once from a process of this
            machine that is gone.
        lease_seconds: length of leases that begin anew after a jump of the clock.
    """

    def __init__(self, name: str, seconds: float, lease_seconds: float = LEASE_SECONDS) -> None:
        self._name = name
        self._seconds = seconds
        self._lease_seconds = lease_seconds
        self._me = lease_owner.worker_id(0)
        self._clock: tuple[float, float] | None = None

    def held(self, store: Store) -> bool:
        """Takes or keeps the duty, and says whether it is this process's; looks at the clock if so.

        Raises:
            OperationalError: the database is away.
        """
        at = store.workers.lead(self._name, self._me, self._seconds, lease_owner.is_dead)
        before, mine = self._clock, time.monotonic()
        self._clock = None if at is None else (at, mine)
        if before is not None and at is not None:
            jump = (at - before[0]) - (mine - before[1])
            if abs(jump) >= JUMP_SECONDS:
                log.warning("the database's clock jumped by %.0f s: all leases begin anew", jump)
                store.shards.reset_clock(jump, self._lease_seconds)
        return at is not None

    def release(self, store: Store) -> None:
        """Leaves the duty to others, at once.

        Raises:
            OperationalError: the database is away; others wait until its time is over.
        """
        self._clock = None
        store.workers.resign(self._name, self._me)
