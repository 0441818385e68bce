"""What `torch.cuda` is to a CUDA device, to the emulated one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Protocol
from unittest.mock import patch

import torch
from torch import Tensor

from assay.workers import accelerator
from tests.support.emulated_device.capture import Capturing, graphed
from tests.support.emulated_device.memory import Memory

# Without a limit it says that it is as large as an H100.
TOTAL = 80 * 2**30


class Queue(Capturing, Protocol):
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
    """The functions of `torch.cuda` that `assay.workers.accelerator` and torch itself call.

    The default generator of the device is the CPU's.

    Attributes:
        emptied: How often the allocator was told to give back what it keeps.
        seeds: What the default generator was seeded with.
        selected: The devices that were made the process's own.
        utilized: Percent of the time that it computes; None: as without NVML.
    """

    nccl = SimpleNamespace(version=lambda: (0, 0, 0))

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.emptied = 0
        self.seeds: list[int] = []
        self.selected: list[int] = []
        self.utilized: int | None = None

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def init(self) -> None:
        """It has begun."""

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, device: int) -> None:
        self.selected.append(device)

    def device(self, device: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def manual_seed(self, value: int) -> None:
        self.seeds.append(value)
        torch.default_generator.manual_seed(value)

    def get_rng_state(self, device: Any = None) -> Tensor:
        return torch.get_rng_state()

    def set_rng_state(self, state: Tensor, device: Any = None) -> None:
        torch.set_rng_state(state)

    def synchronize(self, device: Any = None) -> None:
        self._queue.finish()

    def Event(self) -> Event:  # noqa: N802 - a class in torch.cuda
        return Event(self._queue)

    def make_graphed_callables(self, function: Any, sample_args: tuple[Tensor, ...]) -> Any:
        (sample,) = sample_args
        return graphed(self._queue, function, sample)

    def empty_cache(self) -> None:
        self.emptied += 1

    def memory_allocated(self, device: Any = None) -> int:
        return self._queue.memory.held

    def max_memory_allocated(self, device: Any = None) -> int:
        return self._queue.memory.peak

    def reset_peak_memory_stats(self, device: Any = None) -> None:
        self._queue.memory.peak = self._queue.memory.held

    def set_per_process_memory_fraction(self, fraction: float, device: Any = None) -> None:
        self._queue.memory.limit = int(fraction * self.mem_get_info()[1])

    def memory_reserved(self, device: Any = None) -> int:
        return self._queue.memory.held

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        memory = self._queue.memory
        total = TOTAL if memory.limit is None else memory.limit
        return max(0, total - memory.held - memory.others), total

    def utilization(self, device: Any = None) -> int:
        if self.utilized is None:
            raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")
        return self.utilized

    def get_device_name(self, device: Any = None) -> str:
        return "emulated"

    def get_device_capability(self, device: Any = None) -> tuple[int, int]:
        return 9, 0


@contextmanager
def plugged_in(backend: Backend, device: torch.device) -> Iterator[None]:
    """The backend in the place of `torch.cuda`: for the product, and for torch, which asks `torch.KIND`."""
    torch.get_device_module.cache_clear()
    try:
        with (
            patch.object(torch, device.type, backend, create=True),
            patch.multiple(accelerator, kind=str(device), driver=backend),
        ):
            yield
    finally:
        torch.get_device_module.cache_clear()
