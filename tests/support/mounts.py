"""Mounts of a process of its own, for tests that need files where a system has none.

`python -m tests.support.mounts MODULE` runs a module where other users can read this Python (`open_home`).
"""

from __future__ import annotations

import ctypes
import os
import runpy
import sys
from pathlib import Path

_CLONE_NEWNS, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x00020000, 0x1000, 0x4000, 1 << 18
_LIBC = ctypes.CDLL(None, use_errno=True)


def private_mounts() -> bool:
    """Gives this process mounts of its own; False where it may not have them."""
    if os.getuid() != 0 or _LIBC.unshare(_CLONE_NEWNS) != 0:
        return False
    return int(_LIBC.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC | _MS_PRIVATE), None)) == 0


def mount_tmpfs(folder: str) -> None:
    """An empty file system in place of what a folder has, for this process.

    Raises:
        OSError: the kernel refuses.
    """
    if _LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", ctypes.c_ulong(0), b"mode=755") != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), folder)


def open_home() -> bool:
    """Lets other users of this process's mounts read its Python, though that is in a closed home.

    False where this process may have no mounts of its own.
    """
    if not private_mounts():
        return False
    home, python = Path.home(), Path(sys.base_prefix)
    if python.is_relative_to(home):
        held = os.open(python, os.O_PATH)
        mount_tmpfs(str(home))
        python.mkdir(parents=True)
        source, flags = os.fsencode(f"/proc/self/fd/{held}"), ctypes.c_ulong(_MS_BIND | _MS_REC)
        if _LIBC.mount(source, os.fsencode(python), None, flags, None) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(python))
        os.close(held)
    return True


if __name__ == "__main__":
    if not open_home():
        sys.exit("no mounts of a process of its own")
    sys.argv = sys.argv[1:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
