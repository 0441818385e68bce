"""Prefetches items on threads, while the device works."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Prefetched = TypeVar("Prefetched")
Loaded = TypeVar("Loaded")

MAX_THREADS = 8


def prefetch(
    load: Callable[[Prefetched], Loaded], items: Iterable[Prefetched], *, threads: int | None = None
) -> Generator[Loaded, None, None]:
    """What `load` makes of each item, in order; as many are loaded ahead as there are threads.

    By default a thread for each processor, at most `MAX_THREADS`.
    """
    threads = threads or max(1, min(MAX_THREADS, os.cpu_count() or 1))
    waiting = iter(items)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="load-ahead")
    try:
        pending: deque[Future[Loaded]] = deque(pool.submit(load, item) for item in islice(waiting, threads))
        while pending:
            loaded = pending.popleft()
            pending.extend(pool.submit(load, item) for item in islice(waiting, 1))
            yield loaded.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
