"""Who holds a lease: host, boot, process and thread, so that a dead owner on this machine is recognised."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path


def identity(number: int) -> str:
    """The owner string of supervisor `number` of this process: host:boot:pid:start:number."""
    return f"{host()}:{_boot()}:{pid()}:{_started(pid())}:{number}"


def host() -> str:
    """This machine's name, without the separator."""
    return socket.gethostname().replace(":", "_")


def pid() -> int:
    """This process."""
    return os.getpid()


def is_dead(owner: str) -> bool:
    """Whether the owner was a process of this machine and boot, or of an earlier boot, that is gone.

    False for owners on other machines: only their lease can tell.
    """
    parts = owner.split(":")
    if len(parts) != 5 or parts[0] != host():
        return False
    if parts[1] != _boot():
        return True
    return _started(int(parts[2])) != parts[3]


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"


def _started(process: int) -> str:
    """Start time in clock ticks (field 22 of /proc/PID/stat): a reused pid has another one."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return "gone"
    return stat.rpartition(")")[2].split()[19]
