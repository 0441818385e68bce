"""Work that a page waits for a little: what takes longer goes on in a thread, for the next page."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Generic, TypeVar

WAIT_SECONDS = 3.0
MAX_PENDING = 8

Made = TypeVar("Made")


class Pending(Generic[Made]):
    """Pieces of work by key, each in a thread of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: OrderedDict[Hashable, Future[Made]] = OrderedDict()

    def of(self, key: Hashable, make: Callable[[], Made]) -> Made | None:
        """What the work gives, or None while it goes on; beside `MAX_PENDING` others it waits its turn."""
        with self._lock:
            future = self._started.get(key)
            if future is None:
                if not self._room():
                    return None
                future = self._started[key] = Future()
                threading.Thread(target=_run, args=(future, make), daemon=True).start()
        try:
            made = future.result(timeout=WAIT_SECONDS)
        except NotYet:
            if not future.done():
                return None
            self._forget(key)
            raise
        except Exception:
            self._forget(key)
            raise
        self._forget(key)
        return made

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            self._started.pop(key, None)

    def _room(self) -> bool:
        if len(self._started) >= MAX_PENDING:
            ended = next((key for key, future in self._started.items() if future.done()), None)
            if ended is None:
                return False
            del self._started[ended]
        return True


def _run(future: Future[Made], make: Callable[[], Made]) -> None:
    try:
        future.set_result(make())
    except BaseException as error:
        future.set_exception(error)
