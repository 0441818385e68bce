"""Which service has a state folder: its lock file, held by the service, names process and address."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import IO

DEFAULT_STATE = Path("assay-state")  # of calls that name none
LOCK = "lock"  # file of the state folder: "PROCESS ADDRESS"
PRIVATE = "--private"  # argument of a service that ends with the call it serves, and states no address


@dataclass(frozen=True)
class Holder:
    """The service that has a state folder."""

    state: Path
    process: str  # its number; empty just after its start
    address: str  # for clients of this machine; empty for a service that ends with the call it serves

    def __str__(self) -> str:
        where = f", at {self.address}" if self.address else ""
        who = f"another Assay service (process {self.process or 'unknown'}{where})"
        return f"{who} uses the state folder {self.state}"


def serving_text(state: Path) -> str:
    """What goes before a command for the service of a state folder that has ended."""
    return f"`assay serve --state {shlex.quote(str(state))}`, and in another terminal "


def read_holder(state: Path, file: IO[str]) -> Holder:
    """The holder that an open lock file names."""
    file.seek(0)
    process, _, address = file.read().strip().partition(" ")
    return Holder(state, process, address)


def holder_of(state: Path) -> Holder | None:
    """The service that runs with a state folder; None without a service."""
    import fcntl

    try:
        with (state / LOCK).open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = read_holder(state, file)
                # Where another user may have written the address, no key is sent there.
                facts = os.fstat(file.fileno())
                is_own = facts.st_uid == os.getuid() and not facts.st_mode & 0o022
                return holder if is_own else Holder(state, holder.process, "")
    except OSError:  # no folder, or not readable
        pass
    return None
