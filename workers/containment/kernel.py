"""Calls to the kernel that Python's library lacks, and process attributes of containment."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION = 0x20080522
CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
_MAX_CAPABILITY = 63
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


class Unavailable(Exception):
    """Kernel or sandbox refuses a part of containment; says why."""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def machine() -> str:
    """The processor's architecture as the kernel names it: "x86_64", "aarch64"."""
    return platform.machine()


def syscall(number: int, *arguments: object) -> int:
    """A system call by number. Raises OSError: it failed."""
    call = _libc().syscall
    call.restype = ctypes.c_long
    result = int(call(ctypes.c_long(number), *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def prctl(option: int, *values: int) -> int:
    """Change or ask for an attribute of this process. Raises OSError."""
    padded = [*values, 0, 0, 0, 0][:4]
    result = int(_libc().prctl(option, *(ctypes.c_ulong(value) for value in padded)))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def forbid_dumps() -> None:
    """Makes memory and environment of this process unreadable to others of its user (Linux only)."""
    if sys.platform == "linux":
        prctl(PR_SET_DUMPABLE, 0)


def forbid_new_privileges() -> None:
    """No program that this process or its children execute gains privileges; else Unavailable."""
    try:
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    except OSError as error:
        raise Unavailable(f"no_new_privs: {error.strerror}") from None


def drop_bounding_set() -> None:
    """No program that this process executes gains a capability; needs the rights of root."""
    for capability in range(_MAX_CAPABILITY + 1):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # unknown here, or not ours to drop: it cannot be gained either
            continue


def drop_capabilities() -> None:
    """Gives up every capability, for good. Raises Unavailable: the kernel refuses."""
    drop_bounding_set()
    try:
        prctl(PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    except OSError as error:
        raise Unavailable(f"ambient capabilities: {error.strerror}") from None
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    none = (ctypes.c_uint32 * 6)()
    if _libc().capset(header, none) != 0:
        raise Unavailable(f"capset: {os.strerror(ctypes.get_errno())}")


def close_descriptors(kept: set[int]) -> None:
    """Closes all descriptors from 3 on but these."""
    first = 3
    for descriptor in sorted(kept):
        if descriptor >= first:
            os.closerange(first, descriptor)
            first = descriptor + 1
    os.closerange(first, max(os.sysconf("SC_OPEN_MAX"), first))


def enter_private_network() -> None:
    """Moves this process into a network with only a loopback interface; Unavailable: it is refused."""
    user, group = os.geteuid(), os.getegid()
    try:
        if _libc().unshare(CLONE_NEWNET) != 0:
            _checked(_libc().unshare(CLONE_NEWUSER | CLONE_NEWNET))
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
        _raise_loopback()
    except OSError as error:
        raise Unavailable(f"network namespace: {error.strerror}") from None


def _checked(result: int) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _raise_loopback() -> None:
    import fcntl
    import socket
    import struct

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        asked = fcntl.ioctl(any_socket, _SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))
        flags = struct.unpack("16sH14x", asked)[1]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))
