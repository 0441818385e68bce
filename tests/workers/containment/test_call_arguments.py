"""System calls that are refused by their arguments, each with an argument beside that is allowed.

By the numbers of the kernel's interface, not by the names of the code under test.
"""

from __future__ import annotations

import ctypes
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment.contain import contain
from assay.workers.containment.kernel import machine
from assay.workers.containment.policy import Policy
from assay.workers.containment.probe import missing_parts
from assay.workers.containment.system_call_numbers import NUMBERS
from tests.support.children import in_a_child

pytestmark = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")

LIBC = ctypes.CDLL(None, use_errno=True)
RLIMIT_CORE, PR_SET_DUMPABLE, PR_SET_PTRACER = 4, 4, 0x59616D61
TIOCSTI, TIOCLINUX, TCGETS = 0x5412, 0x541C, 0x5401
AF_UNIX, AF_INET, SOCK_STREAM = 1, 2, 1


def outcome(name: str, *arguments: int | bytes) -> str:
    """The name of a call's error; "done" where the kernel has done it."""
    LIBC.syscall.restype = ctypes.c_long
    plain = [ctypes.c_long(one) if isinstance(one, int) else ctypes.c_char_p(one) for one in arguments]
    if LIBC.syscall(ctypes.c_long(NUMBERS[machine()][name]), *plain) >= 0:
        return "done"
    return errno.errorcode[ctypes.get_errno()]


def in_a_thread(work: Callable[[], str]) -> str:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def tried(folder: Path, work: Callable[[int], Any]) -> Any:
    """What a function returns in a contained child; it is given a device that was open before."""

    def contained() -> Any:
        device = os.open("/dev/null", os.O_RDWR)
        assert contain(Policy(folder, frozenset(), (), folder)) == {}
        return work(device)

    return in_a_child(contained)


def test_calls_are_refused_by_their_arguments(tmp_path: Path) -> None:
    """Another error than EPERM means that the kernel looked at them."""
    stranger = os.getpid()

    def work(device: int) -> dict[str, str]:
        return {
            "limits of another process": outcome("prlimit64", stranger, RLIMIT_CORE, 0, 0),
            "a signal to another process": outcome("kill", stranger, 0),
            "a signal to its thread": outcome("tgkill", stranger, stranger, 0),
            "a letter typed at a terminal": outcome("ioctl", device, TIOCSTI, b"x"),
            "text pasted into a console": outcome("ioctl", device, TIOCLINUX, b"x"),
            "a tracer": outcome("prctl", PR_SET_PTRACER, -1, 0, 0, 0),
            "its memory for others": outcome("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0),
            "a pair of sockets of the internet": outcome("socketpair", AF_INET, SOCK_STREAM, 0, bytes(8)),
        }

    found = tried(tmp_path, work)
    assert found == dict.fromkeys(found, "EPERM")


def test_the_same_calls_are_allowed_to_a_process_on_itself(tmp_path: Path) -> None:
    def work(device: int) -> dict[str, str]:
        own = os.getpid()
        return {
            "limits": outcome("prlimit64", own, RLIMIT_CORE, 0, 0),
            "limits of the caller": outcome("prlimit64", 0, RLIMIT_CORE, 0, 0),
            "a signal": outcome("kill", own, 0),
            "a signal to its thread": outcome("tgkill", own, threading.get_native_id(), 0),
            "a signal to another of its threads": in_a_thread(
                lambda: outcome("tgkill", own, threading.get_native_id(), 0)
            ),
            "a pair of sockets": outcome("socketpair", AF_UNIX, SOCK_STREAM, 0, bytes(8)),
            # /dev/null is no terminal: it is asked, and says so.
            "settings of a terminal": {"ENOTTY": "done"}.get(outcome("ioctl", device, TCGETS, bytes(64)), ""),
        }

    found = tried(tmp_path, work)
    assert found == dict.fromkeys(found, "done")
