"""What a worker of this machine can use, found out without importing torch."""

from __future__ import annotations

import os
from pathlib import Path


def device_classes(dev: Path = Path("/dev")) -> tuple[str, ...]:
    """("cuda", "cpu") where an NVIDIA device is visible to this process, else ("cpu",)."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in {"", "-1"}
    visible = not hidden and any(dev.glob("nvidia[0-9]*"))
    return ("cuda", "cpu") if visible else ("cpu",)


def available_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
