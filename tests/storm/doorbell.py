"""Unreliable doorbell of the service: some rings are dropped, some repeated."""

from __future__ import annotations

import random
from collections import Counter

from assay.service.dispatch import CeleryDispatcher

DROPPED, REPEATED = 0.3, 0.3
TIMES = 20


class BadDoorbell:
    """Rings like the service, but less or more often than it should.

    Attributes:
        done: how many rings were dropped, passed on and repeated.
    """

    def __init__(self, redis_url: str, seed: int) -> None:
        self._dispatcher = CeleryDispatcher(redis_url)
        self._draw = random.Random(f"doorbell {seed}")
        self.done: Counter[str] = Counter()

    def ring(self, job_id: str) -> None:
        """Notify the workers of a job never, once or repeatedly."""
        luck = self._draw.random()
        kind = "dropped" if luck < DROPPED else "repeated" if luck < DROPPED + REPEATED else "passed on"
        self.done[kind] += 1
        for _ in range({"dropped": 0, "passed on": 1, "repeated": TIMES}[kind]):
            self._dispatcher.ring(job_id, "auto")

    def close(self) -> None:
        """End its thread."""
        self._dispatcher.close()
