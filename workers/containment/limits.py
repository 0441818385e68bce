"""Limits of an evaluator's memory, processor time, files and processes (setrlimit)."""

from __future__ import annotations

import math
import os
import resource
from dataclasses import dataclass
from pathlib import Path

from assay.workers.containment.kernel import Unavailable

# Processes and threads of the user beyond those that there are when a training begins. Linux does not count
# those of root.
SPARE_PROCESSES = 1024
DESCRIPTORS = 4096
# Between SIGXCPU, which the supervisor reports, and SIGKILL.
LAST_SECONDS = 10


@dataclass(frozen=True)
class Limits:
    """What one evaluator process may use; 0 for no limit.

    Attributes:
        memory: bytes of address space (with a GPU: of data), beyond what the libraries take.
        processor_seconds: of all its threads together.
        file_bytes: of each file that it writes.
    """

    memory: int = 0
    processor_seconds: int = 0
    file_bytes: int = 0


NO_LIMITS = Limits()

# Kinds of the limit of memory under which `apply` put this process; empty before.
_limited: list[int] = []


def apply(limits: Limits, *, processes: bool, gpu: bool) -> None:
    """Limit this process and all that it starts, for good.

    Raises:
        Unavailable: the system refuses a limit.
    """
    # CUDA reserves address space far beyond any memory, so there the limit is of private data alone.
    kind = resource.RLIMIT_DATA if gpu else resource.RLIMIT_AS
    try:
        _lower(resource.RLIMIT_CORE, 0)
        _lower(resource.RLIMIT_NOFILE, DESCRIPTORS)
        if limits.memory:
            _lower(kind, limits.memory + _in_use(data=gpu))
        if limits.file_bytes:
            _lower(resource.RLIMIT_FSIZE, limits.file_bytes)
        if limits.processor_seconds:
            _lower(resource.RLIMIT_CPU, limits.processor_seconds, limits.processor_seconds + LAST_SECONDS)
        if processes:
            _lower(resource.RLIMIT_NPROC, _tasks_of_user() + SPARE_PROCESSES)
        if hasattr(resource, "RLIMIT_MSGQUEUE"):
            _lower(resource.RLIMIT_MSGQUEUE, 0)
        _limited.append(kind)
    except (OSError, ValueError) as error:
        raise Unavailable(f"setrlimit: {error}") from None


def narrow(memory: int, processor_seconds: float | None) -> None:
    """Hold a limited process to what its work needs; the next call may allow more, up to `apply`'s limits.

    Without effect in a process without limits, such as one that runs no foreign work.

    Args:
        memory: bytes beyond those in use now.
        processor_seconds: of all threads together, from now; None for no other limit than `apply`'s.
    """
    if not _limited:
        return
    _tighten(_limited[-1], memory + _in_use(data=_limited[-1] == resource.RLIMIT_DATA))
    if processor_seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _tighten(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + processor_seconds))


def _tighten(kind: int, soft: int) -> None:
    """Sets the soft limit alone, which may rise again to the hard one."""
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def _lower(kind: int, soft: int, hard: int | None = None) -> None:
    """Never raises a limit that is lower already."""
    hard = soft if hard is None else hard
    allowed = resource.getrlimit(kind)[1]
    if allowed != resource.RLIM_INFINITY:
        soft, hard = min(soft, allowed), min(hard, allowed)
    resource.setrlimit(kind, (soft, hard))


def _in_use(*, data: bool) -> int:
    """Bytes of address space, or of data, that this process has mapped."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[5 if data else 0]) * os.sysconf("SC_PAGE_SIZE")


def _tasks_of_user() -> int:
    """Processes and threads of this user."""
    count, user = 0, os.getuid()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid == user:
                    stat = Path(entry.path, "stat").read_text()
                    count += int(stat.rpartition(")")[2].split()[17])
            except OSError:  # it has ended
                continue
    return count


def machine_memory() -> int:
    """Bytes of memory of the machine, or of the container where that is less; 0 where it is unknown."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return 0
    for file in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        try:
            total = min(total, int(file.read_text()))
        except (OSError, ValueError):  # "max": no limit
            continue
    return total
