"""Limits of an evaluator's memory, processor time, files and processes (setrlimit)."""

from __future__ import annotations

import math
import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from assay.workers.containment.kernel import Unavailable

# Processes and threads of the user beyond those that there are when a job begins.
SPARE_PROCESSES = 1024 + 8 * (os.cpu_count() or 1)
# Linux does not count processes of root, by the real user: there an evaluator gets its own user. From the
# range that systemd leaves unused (https://systemd.io/UIDS-GIDS); the highest process id is 2^22.
FIRST_USER = 1_879_048_192
DESCRIPTORS = 4096
# Between SIGXCPU, which the supervisor reports, and SIGKILL.
LAST_SECONDS = 10


@dataclass(frozen=True)
class Limits:
    """What one evaluator process may use; 0 for no limit."""

    memory: int = 0  # bytes of address space (with a GPU: of data), beyond what the libraries take
    processor_seconds: int = 0  # of all its threads together
    file_bytes: int = 0  # of each file that it writes


NO_LIMITS = Limits()

# Kinds of the limit of memory under which `apply` put this process; empty before.
_limited: list[int] = []


def apply(limits: Limits, *, programs: bool, gpu: bool) -> None:
    """Limit this process and all that it starts, for good.

    `programs`: it starts programs. Those of a root that is counted under another user would run as that user,
    who owns none of its files: it is not counted, and its supervisor ends it when it has too many processes
    (`supervision/job_limits.py`). The same with a GPU, on which this was never tried.

    Raises Unavailable: the system refuses a limit.
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
        if not programs and not gpu:
            _be_counted()
        _lower(resource.RLIMIT_NPROC, _tasks_of_user() + SPARE_PROCESSES)
        if hasattr(resource, "RLIMIT_MSGQUEUE"):
            _lower(resource.RLIMIT_MSGQUEUE, 0)
        _limited.append(kind)
    except (OSError, ValueError) as error:
        raise Unavailable(f"setrlimit: {error}") from None


def _be_counted() -> None:
    """Gives a process of root a real user of its own, by whom Linux counts; its rights stay root's.

    The filter of system calls keeps it from changing back (`seccomp.py`). Without effect where the user
    namespace lacks that user.
    """
    if os.getuid() == 0:
        with suppress(OSError):
            os.setresuid(FIRST_USER + os.getpid(), -1, -1)


def narrow(memory: int, processor_seconds: float | None) -> None:
    """Hold a limited process to what its work needs; the next call may allow more, up to `apply`'s limits.

    Without effect in a process without limits, such as one that runs no foreign work. `memory`: bytes beyond
    those in use now. `processor_seconds`: of all threads together, from now; None for no other limit than
    `apply`'s.
    """
    if not _limited:
        return
    _tighten(_limited[-1], memory + _in_use(data=_limited[-1] == resource.RLIMIT_DATA))
    if processor_seconds is not None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        _tighten(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime + processor_seconds))


def inherited(*, gpu: bool) -> None:
    """Says that this process has the limits of its parent, under which `narrow` holds it to less."""
    _limited.append(resource.RLIMIT_DATA if gpu else resource.RLIMIT_AS)


def resident() -> int:
    """Bytes of memory that this process has now, shared libraries among them; 0 where it is unknown."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


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
