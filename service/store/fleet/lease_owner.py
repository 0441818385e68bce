"""Identity of lease owners: host, boot, process and thread, to recognise dead owners on this machine.

Taking a shard from a living worker wastes its work; waiting for a dead worker's lease costs 90 s. So an owner
is called dead only when that is certain; otherwise the lease decides.
"""

from __future__ import annotations

import os
import socket
import uuid
from functools import cache
from pathlib import Path

PARTS = 5
HIDDEN = "hidden"


def worker_id(number: int) -> str:
    """The owner string of supervisor `number` of this process: host:kernel:pid:start:number."""
    return f"{host()}:{_kernel()}:{pid()}:{_started(pid())}:{number}"


def host() -> str:
    """This machine's name, without the separator."""
    return socket.gethostname().replace(":", "_")


def pid() -> int:
    """This process."""
    return os.getpid()


def is_dead(owner: str) -> bool:
    """Whether the owner was a process under this kernel that is gone."""
    # False under other kernels (machines, earlier boots) and in other process namespaces (containers): their
    # process numbers mean nothing here.
    parts = owner.split(":")
    if len(parts) != PARTS or parts[1] != _kernel() or not parts[2].isdecimal():
        return False
    return _started(int(parts[2])) not in {parts[3], HIDDEN}


@cache
def boot() -> str:
    """This boot, whose processes have one monotonic clock; unique to the process where it is unknown."""
    try:
        named = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return f"unknown-{uuid.uuid4().hex}"
    clocks = Path("/proc/self/ns/time")  # where there are namespaces of clocks
    return f"{named}.{clocks.stat().st_ino if clocks.exists() else ''}"


@cache
def _kernel() -> str:
    """This boot of this machine, and the namespace of its process numbers."""
    # Where these are hidden (sandboxes), a name unique to this process: such machines must not be confused.
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        return f"unknown-{uuid.uuid4().hex}"
    return f"{boot}.{namespace}"


def _started(process: int) -> str:
    """Start time in clock ticks (field 22 of /proc/PID/stat), which tells a reused pid; may be hidden."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return HIDDEN if _exists(process) else "gone"
    fields = stat.rpartition(")")[2].split()
    return "gone" if fields[0] in {"Z", "X"} else fields[19]


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
