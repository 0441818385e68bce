"""Limits of an evaluator's memory, processor time, files and processes (setrlimit)."""

from __future__ import annotations

import math
import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assay.workers.containment.kernel import Unavailable

SPARE_PROCESSES = 1024 + 8 * (os.cpu_count() or 1)  # Of the user, beyond those at a job's beginning
# Linux does not count root's processes, by the real user: an evaluator of root gets its own user, in the
# range that systemd leaves unused (https://systemd.io/UIDS-GIDS); the highest process id is 2^22.
FIRST_USER = 1_879_048_192
DESCRIPTORS = 4096
LAST_SECONDS = 10  # From SIGXCPU, which the supervisor reports, to SIGKILL


@dataclass(frozen=True)
class Limits:
    """What one evaluator process may use; 0 for no limit."""

    memory: int = 0  # bytes of address space (with a GPU: of data), beyond the libraries'
    processor_seconds: int = 0  # of all its threads
    file_bytes: int = 0  # of each file


NO_LIMITS = Limits()

_limited: list[int] = []  # Limits of memory in force in this process


def apply(limits: Limits, *, programs: bool, gpu: bool) -> None:
    """Limit this process and all that it starts, for good. Raises Unavailable: the system refuses.

    `programs`: it starts programs. A root's programs would run as the user that counts it, who owns none of
    its files: it is not counted, and its supervisor ends it when it has too many processes
    (`supervision/job_limits.py`).
    """
    # CUDA reserves address space far beyond any memory.
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
        if not programs and not gpu:
            _be_counted()
        _lower(resource.RLIMIT_NPROC, _tasks_of_user() + SPARE_PROCESSES)
        if hasattr(resource, "RLIMIT_MSGQUEUE"):
            _lower(resource.RLIMIT_MSGQUEUE, 0)
        _limited.append(kind)
    except (OSError, ValueError) as error:
        raise Unavailable(f"setrlimit: {error}") from None


def _be_counted() -> None:
    """Gives a process of root a real user, by whom Linux counts; its rights stay root's.

    The filter of calls keeps it from changing back (`seccomp.py`). Without effect where the user namespace
    lacks that user.
    """
    if os.getuid() == 0:
        with suppress(OSError):
            os.setresuid(FIRST_USER + os.getpid(), -1, -1)


def narrow(memory: int, processor_seconds: float | None) -> None:
    """Hold a limited process to what its work needs; the next call may allow more, up to `apply`'s limits.

    `memory`: bytes beyond those in use. `processor_seconds`: of all threads, from now; None: `apply`'s limit.
    """
    if not _limited:
        return
    _tighten(_limited[-1], memory + _in_use(data=_limited[-1] == resource.RLIMIT_DATA))
    if processor_seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _tighten(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + processor_seconds))


def inherited(*, gpu: bool) -> None:
    """Says that this process has its parent's limits, within which `narrow` holds it."""
    _limited.append(resource.RLIMIT_DATA if gpu else resource.RLIMIT_AS)


def resident() -> int:
    """Bytes of memory of this process, with shared libraries; 0 where unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _tighten(kind: int, soft: int) -> None:
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
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[5 if data else 0]) * os.sysconf("SC_PAGE_SIZE")


def _tasks_of_user() -> int:
    count, user = 0, os.getuid()
    if user == FIRST_USER + os.getpid():
        return 1
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
    """Bytes of memory of the machine, or of its smaller container; 0 where unknown."""
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
