"""The time that benchmarks compare."""

from __future__ import annotations

import time

import torch

from assay.workers import accelerator

CPU = torch.device("cpu")


def clock(device: torch.device = CPU) -> float:
    """Seconds: process time on the CPU, wall time between idle states on a GPU."""
    if device.type == "cpu":
        return time.process_time()
    accelerator.synchronize(device)
    return time.perf_counter()
