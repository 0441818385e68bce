"""What the limits of an evaluator count: threads, mapped data, time in the program and in the kernel."""

from __future__ import annotations

import mmap
import os
import resource
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from assay.workers.containment import limits
from assay.workers.containment.limits import FIRST_USER, SPARE_PROCESSES, Limits
from tests.support.children import in_a_child


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
@pytest.mark.parametrize("threads", [0, 3])
def test_every_thread_of_the_user_counts_beside_the_spare_ones(threads: int) -> None:
    def work() -> int:
        user = FIRST_USER - 1 - os.getpid()  # has no other process
        os.setgid(user)
        os.setuid(user)
        over = threading.Event()
        started = [threading.Thread(target=over.wait) for _ in range(threads)]
        for thread in started:
            thread.start()
        limits.apply(Limits(), programs=False, gpu=False)
        over.set()
        return resource.getrlimit(resource.RLIMIT_NPROC)[0]

    assert in_a_child(work) == SPARE_PROCESSES + 1 + threads


def test_data_that_are_mapped_and_not_yet_written_are_in_use_already() -> None:
    """The kernel counts them by their addresses: the limit begins above them."""

    def work() -> list[bool]:
        private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        held = mmap.mmap(-1, 1 << 31, private)
        limits.apply(Limits(memory=1 << 28), programs=False, gpu=True)
        found = []
        for size in (1 << 27, 1 << 29):
            try:
                found.append(len(mmap.mmap(-1, size, private)) == size)
            except OSError:
                found.append(False)
        return [*found, len(held) == 1 << 31]

    assert in_a_child(work) == [True, False, True]


def test_seconds_in_the_kernel_are_seconds_of_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLIMIT_CPU counts both: 20.5 s more, after 3 s in the program and 5 s in the kernel, end at 29 s."""
    used = SimpleNamespace(ru_utime=3.0, ru_stime=5.0)
    monkeypatch.setattr(resource, "getrusage", lambda who: used)

    def work() -> Any:
        limits.inherited(gpu=False)
        limits.narrow(1 << 40, 20.5)
        return resource.getrlimit(resource.RLIMIT_CPU)[0]

    assert in_a_child(work) == 29
