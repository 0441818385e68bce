"""The filter, call by call: each by its number, from a process that has no other part of the containment."""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment import seccomp
from assay.workers.containment.kernel import forbid_new_privileges, machine
from assay.workers.containment.probe import missing_parts
from assay.workers.containment.system_call_numbers import NUMBERS
from tests.support.children import in_a_child

pytestmark = pytest.mark.skipif("calls" in missing_parts(), reason="this machine has no filters of calls")

LIBC = ctypes.CDLL(None, use_errno=True)
HERE = NUMBERS.get(machine(), {})
AT_FDCWD = -100
# Allowed with some arguments; all others of the table are refused with any arguments.
BY_ARGUMENT = {
    *("creat", "open", "openat", "mknod", "mknodat", "fcntl"),
    *("clone", "fork", "vfork", "kill", "tkill", "tgkill", "socketpair", "prctl", "prlimit64", "ioctl"),
}


def outcome(name: str, *arguments: int | bytes) -> str:
    """The name of a call's error; "done" where the kernel has done it."""
    LIBC.syscall.restype = ctypes.c_long
    plain = [ctypes.c_long(one) if isinstance(one, int) else ctypes.c_char_p(one) for one in arguments]
    if LIBC.syscall(ctypes.c_long(HERE[name]), *plain) >= 0:
        return "done"
    return errno.errorcode[ctypes.get_errno()]


def filtered(work: Callable[[], Any], *, processes: bool = False) -> Any:
    """What a function returns in a child that has the filter alone, with all rights of its user."""

    def contained() -> Any:
        forbid_new_privileges()
        code = seccomp.program(
            processes=processes,
            programs=False,
            loopback=False,
            gpu=False,
            strangers=[os.getppid()],
            architecture=machine(),
        )
        seccomp.install(code)
        return work()

    return in_a_child(contained)


@pytest.mark.parametrize("processes", [False, True])
def test_every_denied_call_is_refused_by_its_number(processes: bool) -> None:
    """With nonsense for arguments: another error than EPERM means that the kernel looked at them."""
    names = sorted(set(HERE) - BY_ARGUMENT - {"clone3", "openat2"})
    assert len(names) > 110
    found = filtered(lambda: {name: outcome(name, *[-1] * 6) for name in names}, processes=processes)
    assert found == dict.fromkeys(names, "EPERM")


def test_calls_whose_arguments_are_in_memory_do_not_exist(tmp_path: Path) -> None:
    """openat2 would make a set-user-id file past the filter, which cannot read the mode."""
    mode = b"".join(value.to_bytes(8, "little") for value in (os.O_CREAT | os.O_RDWR, 0o4755, 0))
    path = os.fsencode(tmp_path / "program")

    def work() -> list[str]:
        opened = outcome("openat2", AT_FDCWD, path, mode, len(mode))
        return [opened, *(outcome(name, 0, 0) for name in ("clone3", "openat2"))]

    assert filtered(work) == ["ENOSYS"] * 3
    assert not (tmp_path / "program").exists()


@pytest.mark.parametrize("bit", [stat.S_ISUID, stat.S_ISGID])
def test_no_call_makes_a_set_id_file(tmp_path: Path, bit: int) -> None:
    new = os.fsencode(tmp_path / "new")
    mode, create = 0o755 | bit, os.O_CREAT | os.O_RDWR

    def work() -> dict[str, str]:
        calls: dict[str, tuple[int | bytes, ...]] = {
            "creat": (new, mode),
            "open": (new, create, mode),
            "openat": (AT_FDCWD, new, create, mode),
            "mknod": (new, stat.S_IFREG | mode, 0),
            "mknodat": (AT_FDCWD, new, stat.S_IFREG | mode, 0),
        }
        assert set(calls) == {name for name, *_ in seccomp.DENIED_BITS}
        return {name: outcome(name, *given) for name, given in calls.items() if name in HERE}

    found = filtered(work)
    assert found == dict.fromkeys(found, "EPERM")
    assert not (tmp_path / "new").exists()


def test_a_new_file_has_the_mode_that_it_is_made_with(tmp_path: Path) -> None:
    def work() -> list[str]:
        os.umask(0o022)
        os.close(os.open(tmp_path / "file", os.O_CREAT | os.O_WRONLY, 0o664))
        (tmp_path / "folder").mkdir(0o700)
        return [oct(stat.S_IMODE((tmp_path / name).stat().st_mode)) for name in ("file", "folder")]

    assert filtered(work) == ["0o644", "0o700"]
