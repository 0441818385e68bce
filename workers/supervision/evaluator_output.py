"""What an evaluator prints: last lines are kept, all at a bearable rate are logged."""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO

from assay.service.contract import logs

log = logging.getLogger(__name__)
MAX_LINE = 4096  # A progress bar may never end its line
LINES_KEPT = 50
LINES_AT_ONCE, LINES_PER_SECOND = 500, 20.0  # A traceback and a library's start are well below


class Rate:
    """`at_once` after a pause, `per_second` on and on; `clock`: monotonic seconds."""

    def __init__(self, at_once: int, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once, self._per_second, self._clock = at_once, per_second, clock
        self._left, self._at = float(at_once), clock()

    def allows(self) -> bool:
        """Whether there is room for one more, which is then taken."""
        now = self._clock()
        self._left = min(self._at_once, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def wait(self) -> None:
        """Take room for one more, when there is some."""
        while not self.allows():
            time.sleep(1.0 / self._per_second)


class EvaluatorOutput:
    """Reads an evaluator's `stdout` to its end, in a thread; `pid` is for the log."""

    def __init__(self, stdout: IO[bytes], pid: int) -> None:
        self.about: Mapping[str, str] = {}  # fields of its log lines
        self._stdout, self._pid = stdout, pid
        self._tail: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
        self._rate = Rate(LINES_AT_ONCE, LINES_PER_SECOND)
        self._dropped = 0
        self._thread = threading.Thread(target=self._drain, name=f"drain-{pid}", daemon=True)
        self._thread.start()

    @property
    def tail(self) -> str:
        """The last lines."""
        return "\n".join(list(self._tail))

    def join(self, seconds: float) -> None:
        """Wait for its end."""
        self._thread.join(seconds)

    def _drain(self) -> None:
        with self._stdout:
            for raw in iter(lambda: self._stdout.readline(MAX_LINE), b""):
                line = logs.escaped(raw.decode(errors="replace").rstrip())
                self._tail.append(line)
                if self._rate.allows():
                    self._say_dropped()
                    self._log("%s", line)
                else:
                    self._dropped += 1
            self._say_dropped()

    def _say_dropped(self) -> None:
        if self._dropped:
            self._log("%d lines were dropped, allowed: %g a second", self._dropped, LINES_PER_SECOND)
            self._dropped = 0

    def _log(self, message: str, *values: object) -> None:
        with logs.about(**self.about):
            log.info(f"evaluator %d: {message}", self._pid, *values)
