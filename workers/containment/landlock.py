"""Landlock: the files, TCP ports, signals and abstract sockets that a process may still reach.

https:

docs.kernel.org/userspace-api/landlock.html. What a ruleset handles is denied except by its rules, to the
thread that applies it and all that it starts; it can only be narrowed afterwards.

A kernel's ABI limits what can be handled: before ABI 2 (Linux 5.19) a file never moves between folders, which
is stricter; before 3 (6.2) truncate(2) is not checked, before 4 (6.7) TCP ports, before 5 (6.10) ioctl on
devices, before 6 (6.12) signals and abstract sockets.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable
from enum import IntFlag
from pathlib import Path

from assay.workers.containment.kernel import Unavailable, syscall

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
_CREATE_RULESET_VERSION = 1
_RULE_PATH_BENEATH, _RULE_NET_PORT = 1, 2
COMPLETE_ABI = 6  # Signals and abstract sockets


class Right(IntFlag):
    """Rights on files and folders."""

    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15


READ = Right.READ_FILE | Right.READ_DIR
# No symbolic links: the service, which serves a job's files, would follow them. No pipes and sockets: it
# would wait there.
CHANGE = (
    READ
    | Right.WRITE_FILE
    | Right.TRUNCATE
    | Right.REMOVE_DIR
    | Right.REMOVE_FILE
    | Right.MAKE_DIR
    | Right.MAKE_REG
    | Right.REFER
)
_OF_A_FILE = Right.EXECUTE | Right.WRITE_FILE | Right.READ_FILE | Right.TRUNCATE | Right.IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2


def abi() -> int:
    """The kernel's Landlock ABI; 0 without Landlock."""
    try:
        return syscall(CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_CREATE_RULESET_VERSION))
    except OSError:
        return 0


def handled_files(version: int) -> Right:
    """The rights on files that an ABI knows."""
    known = (1 << 13) - 1
    for since, right in ((2, Right.REFER), (3, Right.TRUNCATE), (5, Right.IOCTL_DEV)):
        if version >= since:
            known |= right
    return Right(known)


class Ruleset:
    """Rules for this thread. Raises Unavailable: no Landlock, or it is switched off."""

    def __init__(self, *, ports: bool = True) -> None:
        self.abi = abi()
        if self.abi < 1:
            raise Unavailable("the kernel has no Landlock, or it is switched off")
        self._files = handled_files(self.abi)
        network = _BIND_TCP | _CONNECT_TCP if self.abi >= 4 and ports else 0
        scopes = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if self.abi >= 6 else 0
        size = 24 if self.abi >= 6 else 16 if self.abi >= 4 else 8
        attributes = struct.pack("=QQQ", self._files, network, scopes)[:size]
        try:
            self._descriptor = syscall(
                CREATE_RULESET, ctypes.c_char_p(attributes), ctypes.c_size_t(size), ctypes.c_uint32(0)
            )
        except OSError as error:
            raise Unavailable(f"landlock_create_ruleset: {error.strerror}") from None

    def allow(self, path: Path, rights: Right, *, follow: bool = True) -> None:
        """Allow rights at and below an existing path; without `follow` a link gives none on its target."""
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW))
        except OSError:
            return
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                rights &= _OF_A_FILE
            self._add(_RULE_PATH_BENEATH, struct.pack("=Qi", rights & self._files, descriptor))
        finally:
            os.close(descriptor)

    def allow_ports(self, ports: Iterable[int]) -> None:
        """Allow to bind and connect to TCP ports, handled from ABI 4 on."""
        if self.abi >= 4:
            for port in ports:
                self._add(_RULE_NET_PORT, struct.pack("=QQ", _BIND_TCP | _CONNECT_TCP, port))

    def apply(self) -> None:
        """Restrict this thread, for good; needs no_new_privs. Raises Unavailable: the kernel refuses."""
        try:
            syscall(RESTRICT_SELF, ctypes.c_int(self._descriptor), ctypes.c_uint32(0))
        except OSError as error:
            raise Unavailable(f"landlock_restrict_self: {error.strerror}") from None
        finally:
            os.close(self._descriptor)

    def _add(self, kind: int, rule: bytes) -> None:
        syscall(
            ADD_RULE,
            ctypes.c_int(self._descriptor),
            ctypes.c_int(kind),
            ctypes.c_char_p(rule),
            ctypes.c_uint32(0),
        )
