"""Per-example CPU work, on threads while the batch is on a GPU.

Drawing and JPEG release Python's GIL. A job on a CPU uses only the threads it was given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_THREADS = 16


def for_each(items: Sequence[Item], function: Callable[[Item], Result], device: torch.device) -> list[Result]:
    """The function's results for all items, in their order."""
    workers = 1 if device.type == "cpu" else min(MAX_THREADS, len(os.sched_getaffinity(0)), len(items))
    if workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))
