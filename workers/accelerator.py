"""What an accelerator is, and all that the workers ask of its driver.

Everything that is no CPU is an accelerator and goes by CUDA's tables and branches. `kind` and `driver` are
torch's names; the tests put an emulated device in their place (`tests/support/emulated_device`). No other
module names `torch.cuda` or the device type "cuda" (`tests/architecture/test_accelerator.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, Protocol, cast

import torch

from assay.models.layers.attention import pursuit_steps

DeviceClass = Literal["cpu", "cuda"]

kind = "cuda"
driver: Any = torch.cuda
WORKERS_PER_GPU = "ASSAY_WORKERS_PER_GPU"


def workers_each() -> int:
    """Workers that share an accelerator's memory in equal parts (ASSAY_WORKERS_PER_GPU)."""
    return int(os.environ.get(WORKERS_PER_GPU, "1"))


class Recorded(Protocol):
    """A point in the device's queue."""

    def record(self) -> None:
        """Notes the point."""

    def synchronize(self) -> None:
        """Waits until the device has come to it."""


class Memory(NamedTuple):
    """Bytes of this worker's part of a device's memory: free, in all, reserved here."""

    free: int
    total: int
    reserved: int


def is_accelerator(device: torch.device) -> bool:
    """Whether a device computes beside the host, which may have to wait."""
    return device.type != "cpu"


def device_class(device: torch.device) -> DeviceClass:
    """The class by which jobs ask for a device."""
    return "cuda" if is_accelerator(device) else "cpu"


def label(device: torch.device) -> str:
    """How records call a device: "cpu", or "cuda:0" for the first accelerator."""
    return f"cuda:{device.index or 0}" if is_accelerator(device) else "cpu"


def is_available() -> bool:
    """Whether this machine has one."""
    return bool(driver.is_available())


def is_in_use() -> bool:
    """Whether this process uses one; asking does not begin it."""
    return bool(driver.is_initialized())


def count() -> int:
    """How many this process sees."""
    return int(driver.device_count())


def numbered(number: int) -> torch.device:
    """One of those that this process sees, from 0."""
    return torch.device(torch.device(kind).type, number)


def select(number: int) -> torch.device:
    """Makes one of them this process's own, and returns it."""
    driver.set_device(number)
    return numbered(number)


def start_driver() -> None:
    """Starts the driver; RuntimeError or AssertionError says why it does not start."""
    driver.init()


def synchronize(device: torch.device) -> None:
    """Waits until the device has done all that was asked of it."""
    if is_accelerator(device):
        driver.synchronize(device)


def record_event() -> Recorded:
    """A point in the queue after all that was asked so far."""
    event: Recorded = driver.Event()
    event.record()
    return event


def captured(function: Callable[[torch.Tensor], torch.Tensor], sample: torch.Tensor) -> Any:
    """The function and its gradient as graphs of the device, for arguments like the sample, which they keep.

    The next call overwrites results and gradients. RuntimeError: no graph can have the function.
    """
    return driver.make_graphed_callables(function, (sample,))


def compiled(function: str, results: int) -> Callable[..., Any]:
    """A compiled function of elements, a C++ template; AttributeError: it cannot be."""
    return cast(Callable[..., Any], driver.jiterator._create_multi_output_jit_fn(function, results))


pursuit_steps.compiler = compiled  # models know no driver


def empty_cache() -> None:
    """Gives memory without a tensor back to the driver."""
    if is_available():
        driver.empty_cache()


def memory(device: torch.device | None = None) -> Memory:
    """Memory of an accelerator, by default the one in use; RuntimeError: it cannot be asked."""
    free, total = driver.mem_get_info(device)
    reserved, part = int(driver.memory_reserved(device)), int(total) // workers_each()
    return Memory(int(free) if part == total else min(int(free), max(0, part - reserved)), part, reserved)


def busy_share() -> float | None:
    """Busy share of the last second at most, of the accelerator in use; None: unknown."""
    try:
        return float(driver.utilization()) / 100
    except Exception:  # without nvidia-ml-py, or for a part of a GPU (MIG)
        return None


def reset_peak_bytes(device: torch.device) -> int:
    """Begins to measure the memory's peak; bytes held now."""
    driver.synchronize(device)
    driver.reset_peak_memory_stats(device)
    return int(driver.memory_allocated(device))


def peak_bytes(device: torch.device) -> int:
    """The most memory that was held since, in bytes."""
    driver.synchronize(device)
    return int(driver.max_memory_allocated(device))


def total_bytes(device: torch.device) -> int | None:
    """This worker's part of the device's memory, in bytes; None for a CPU."""
    return int(driver.mem_get_info(device)[1]) // workers_each() if is_accelerator(device) else None


def keep_to_part(device: torch.device) -> None:
    """Limits this process to its worker's part; more is an OutOfMemoryError."""
    if is_accelerator(device) and workers_each() > 1:
        driver.set_per_process_memory_fraction(1 / workers_each(), device)


def name_of(device: torch.device | None = None) -> str:
    """The driver's name of an accelerator, by default the one in use."""
    return str(driver.get_device_name(device))


def capability(device: torch.device) -> str:
    """The compute capability of an accelerator, like "9.0"."""
    return ".".join(map(str, driver.get_device_capability(device)))


def collectives() -> str | None:
    """The version of NCCL that torch has; None without."""
    if torch.version.cuda is None or not torch.distributed.is_nccl_available():
        return None
    return ".".join(map(str, driver.nccl.version()))


def seed(value: int, device: torch.device) -> None:
    """Seeds torch's default generators: the CPU's, and the device's.

    `torch.manual_seed` seeds all, and keeps a stack trace of each call while CUDA is not in use.
    """
    torch.default_generator.manual_seed(value)
    if is_accelerator(device):
        with driver.device(device):
            driver.manual_seed(value)


def generators_restored(device: torch.device) -> AbstractContextManager[None]:
    """Restores the same generators on exit."""
    if is_accelerator(device):
        return torch.random.fork_rng([device], device_type=device.type)
    return torch.random.fork_rng([])
