"""When a worker ends by itself: after a time without work, or at the end of its time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

ENDING_SECONDS = 5.0  # Beside the evaluator's grace: to give a shard back, and to say goodbye


@dataclass(frozen=True)
class WorkerEnd:
    """A worker's end; None: never for that reason. Times are in seconds since its start."""

    idle_seconds: float | None = None
    max_seconds: float | None = None
    grace_seconds: float = 0.0  # of an evaluator that is told to end
    begun: float = field(default_factory=time.monotonic)

    def seconds_left(self) -> float | None:
        """Seconds for shards, without those that its end takes; None: any number."""
        if self.max_seconds is None:
            return None
        return self.begun + self.max_seconds - self.grace_seconds - ENDING_SECONDS - time.monotonic()

    def reason(self, idle_seconds: float, *, cordoned: bool = False) -> str | None:
        """Why a worker without work for so long ends now; None: it goes on."""
        if self.idle_seconds is not None and cordoned and idle_seconds > 0:
            return "it is cordoned, and has no shard"
        if self.idle_seconds is not None and idle_seconds >= self.idle_seconds:
            return f"no work for {self.idle_seconds:g} s"
        left = self.seconds_left()
        return None if left is None or left > 0 else f"its {self.max_seconds:g} s are over"
