"""What `torch.cuda` is to a CUDA device, to the emulated one."""

from __future__ import annotations

from typing import Any, Protocol

from tests.support.emulated_device.memory import Memory

# Without a limit it says that it is as large as an H100.
TOTAL = 80 * 2**30


class Queue(Protocol):
    """The device, as far as it is waited for."""

    memory: Memory
    event_waits: int
    copies: list[Any]

    def finish(self, count: int | None = None) -> None:
        """Ends copies to the host."""


class Event:
    """After so many copies."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._last: Any = None

    def record(self) -> None:
        """Notes the last copy asked for."""
        self._last = self._queue.copies[-1] if self._queue.copies else None

    def synchronize(self) -> None:
        """Ends copies up to that one."""
        self._queue.event_waits += 1
        places = [place for place, copy in enumerate(self._queue.copies) if copy is self._last]
        if places:
            self._queue.finish(places[0] + 1)


class Backend:
    """The functions of `torch.cuda` that `assay.workers.accelerator` calls."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.emptied = 0

    def is_available(self) -> bool:
        return True

    def synchronize(self, device: Any = None) -> None:
        self._queue.finish()

    def Event(self) -> Event:  # noqa: N802 - a class in torch.cuda
        return Event(self._queue)

    def empty_cache(self) -> None:
        self.emptied += 1

    def memory_allocated(self, device: Any = None) -> int:
        return self._queue.memory.held

    def max_memory_allocated(self, device: Any = None) -> int:
        return self._queue.memory.peak

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self._queue.memory.peak = self._queue.memory.held

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        total = self._queue.memory.limit or TOTAL
        return max(0, total - self._queue.memory.held), total

    def get_device_name(self, device: Any = None) -> str:
        return "emulated"
