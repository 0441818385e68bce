"""Refused calls: counted by where they come from, and audited while they are few.

Thirty failed logins from one address within a minute are answered with 401, further ones with 429 until the
minute is over. Only failures count and only failures are refused: a key that works always passes, so one
misconfigured client cannot lock out the others behind its address, and a success resets no count. A key has
160 random bits: the limit bounds the work and the audit rows of whoever tries, not the chance to guess one.

Memory is fixed: addresses (IPv6 by /64) share 65,536 counters by their hash. Two addresses on one counter can
at worst get 429 in place of 401. With Redis all processes of the service count together; without it, or while
it is away, each counts what it sees.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import math
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any, Literal

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from assay.service.contract.audit import Action
from assay.service.contract.errors import TooManyRequests
from assay.service.store.audit import Actor
from assay.service.store.keys import SHAPE
from assay.service.store.live import Live
from assay.service.store.store import Store

logger = logging.getLogger(__name__)

MAX_FAILURES = 30
WINDOW_SECONDS = 60.0
COUNTERS = 65_536
MAX_ROWS = 600  # Rows of refusals that a process writes in a minute, for any number of addresses.


class MinuteCounts:
    """Counts within a minute from the first, in memory of a fixed size; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._ends = array("d", bytes(8 * COUNTERS))
        self._counts = array("L", bytes(array("L").itemsize * COUNTERS))

    def count(self, number: int) -> tuple[int, float]:
        """Counts one more; the new count, and the seconds until it begins again."""
        moment = self._clock()
        with self._lock:
            if self._ends[number] <= moment:
                self._ends[number] = moment + WINDOW_SECONDS
                self._counts[number] = 0
            self._counts[number] += 1
            return self._counts[number], self._ends[number] - moment


class Refusals:
    """The refused calls of this process."""

    def __init__(
        self, opener: Callable[[], Store], live: Live, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._opener = opener
        self._live = live
        self._counters = MinuteCounts(clock)
        self._rows = MinuteCounts(clock)
        self._lock = threading.Lock()
        self._left_out = 0

    def login(self, by: Actor, action: Literal["session.open", "key.use"], text: str) -> None:
        """Counts and audits a login with a key that does not work. Asks Redis and the database: in a thread.

        `action` is how the key was sent; of its `text` the id alone is kept, when it has the shape of a key.
        Raises TooManyRequests: after thirty within a minute from this address.
        """
        shape = SHAPE.fullmatch(text)
        detail = {} if shape is None else {"claimed": shape[1]}
        count, seconds = self._note(origin_of(by.address), by, action, None, detail)
        if count > MAX_FAILURES:
            raise TooManyRequests(
                f"more than {MAX_FAILURES} failed logins from this address within a minute;"
                f" allowed again in {math.ceil(seconds)} seconds, and at once with a key that works",
                retry_after=seconds,
            )

    def access(self, by: Actor, method: str, path: str, reason: str) -> None:
        """Audits a call that the key may not make, at most thirty calls of a key within a minute."""
        self._note(f"key {by.key}", by, "access", path, {"method": method[:20], "reason": reason})

    def _note(
        self, origin: str, by: Actor, action: Action, target: str | None, detail: Mapping[str, Any]
    ) -> tuple[int, float]:
        number = int.from_bytes(hashlib.sha256(origin.encode()).digest()[:2], "big")
        counted = self._counters.count(number)
        shared = self._live.count_failure(number, int(WINDOW_SECONDS))
        if shared is not None:
            counted = max(counted, shared)
        if counted[0] <= MAX_FAILURES + 1 and self._may_write():
            with self._lock:
                left_out, self._left_out = self._left_out, 0
            told = {**detail, **({"left_out": left_out} if left_out else {})}
            outcome: Literal["refused", "limited"] = "refused" if counted[0] <= MAX_FAILURES else "limited"
            try:
                self._opener().audit.add(by, action, target, outcome=outcome, detail=told)
            except (DBAPIError, PoolTimeout) as error:
                logger.warning("a refused call could not be audited: %s", error)  # it stays refused
        return counted

    def _may_write(self) -> bool:
        """Whether this process may write another row in this minute; what it may not is counted."""
        if self._rows.count(0)[0] <= MAX_ROWS:
            return True
        with self._lock:
            self._left_out += 1
        return False


def origin_of(address: str | None) -> str:
    """What shares a count: an IPv4 address, an IPv6 network of 64 bits, or all without an address."""
    try:
        ip = ipaddress.ip_address((address or "").partition("%")[0])
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(ip) >> 64 << 64, 64)))
    return str(ip)
