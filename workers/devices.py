"""Devices and cores available to a worker, found without importing torch."""

from __future__ import annotations

import os
from pathlib import Path


def device_classes(dev: Path = Path("/dev")) -> tuple[str, ...]:
    """("cuda", "cpu") where an NVIDIA device is visible to this process, else ("cpu",)."""
    return ("cuda", "cpu") if _visible_gpus(dev) else ("cpu",)


def device_count(asked: int, dev: Path = Path("/dev")) -> int:
    """Devices of a worker with this setting, at most its visible GPUs."""
    return min(asked, _visible_gpus(dev) or asked)


def device_files(dev: Path = Path("/dev")) -> int:
    """NVIDIA devices with files on the machine, visible here or not."""
    return len(list(dev.glob("nvidia[0-9]*")))


def _visible_gpus(dev: Path) -> int:
    there = device_files(dev)
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return there
    return min(there, len([name for name in chosen.split(",") if name.strip() not in {"", "-1"}]))


def available_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
