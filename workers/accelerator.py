"""What an accelerator is, and all that the workers ask of its driver.

Everything that is no CPU is an accelerator and goes by CUDA's tables and branches. `kind` and `driver` are
torch's names of it; the tests put an emulated device in their place (`tests/support/emulated_device`).
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import torch

DeviceClass = Literal["cpu", "cuda"]

kind = "cuda"
driver: Any = torch.cuda


class Recorded(Protocol):
    """A point in the device's queue."""

    def record(self) -> None:
        """Notes the point."""

    def synchronize(self) -> None:
        """Waits until the device has come to it."""


def is_accelerator(device: torch.device) -> bool:
    """Whether a device computes beside the host, which may have to wait for it."""
    return device.type != "cpu"


def device_class(device: torch.device) -> DeviceClass:
    """The class by which jobs ask for a device."""
    return "cuda" if is_accelerator(device) else "cpu"


def is_available() -> bool:
    """Whether this machine has one."""
    return bool(driver.is_available())


def synchronize(device: torch.device) -> None:
    """Waits until the device has done all that was asked of it; a CPU has."""
    if is_accelerator(device):
        driver.synchronize(device)


def record_event() -> Recorded:
    """A point in the queue after all that was asked so far."""
    event: Recorded = driver.Event()
    event.record()
    return event


def empty_cache() -> None:
    """Gives memory that the allocator keeps and no tensor holds back to the driver."""
    if is_available():
        driver.empty_cache()


def reset_peak_bytes(device: torch.device) -> int:
    """Begins to measure the peak of the memory; what is held now, in bytes."""
    driver.synchronize(device)
    driver.reset_peak_memory_stats(device)
    return int(driver.memory_allocated(device))


def peak_bytes(device: torch.device) -> int:
    """The most memory that was held since, in bytes."""
    driver.synchronize(device)
    return int(driver.max_memory_allocated(device))


def total_bytes(device: torch.device) -> int | None:
    """The device's memory, in bytes; None for a CPU."""
    return int(driver.mem_get_info(device)[1]) if is_accelerator(device) else None


def name_of(device: torch.device) -> str:
    """What the driver calls the device."""
    return str(driver.get_device_name(device))


def generators(device: torch.device) -> list[torch.device]:
    """Devices with default generators of their own beside the CPU's, for `torch.random.fork_rng`."""
    return [device] if device.type == "cuda" else []
