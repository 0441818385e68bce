"""A seccomp filter: system calls that an evaluator has no use for are refused by the kernel.

A list of refusals, as libraries use most of the harmless calls, and others with each version. Newer calls
than listed do not exist (ENOSYS). A refused call fails with EPERM, so that a library can fall back. Only
x86_64 and aarch64 are known.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Collection, Iterable

from assay.workers.containment.kernel import Unavailable, machine, syscall
from assay.workers.containment.system_call_numbers import NUMBERS

NEWEST = 469  # file_setattr, Linux 6.17
_SET_MODE_FILTER, _GET_ACTION_AVAILABLE = 1, 2
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_LOAD, _EQUAL, _GREATER, _AT_LEAST, _ANY_OF, _AND, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x45, 0x54, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000
CLONE_THREAD = 0x00010000
CLONE_NAMESPACES = 0x7E020000
SET_ID_BITS = 0o6000
_AF_INET, _AF_INET6, _AF_NETLINK, _AF_UNIX = 2, 10, 16, 1
_SOCK_STREAM, _SOCK_RAW, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 3, 5, 0xF
_MSG_FASTOPEN = 0x20000000
_NETLINK_ADDRESS, _INET_ADDRESSES = 12, (16, 28)  # bytes
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_PTRACER = 1, 4, 0x59616D61
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_FIOSETOWN, _SIOCSPGRP = 0x8901, 0x8902  # Signals of files and sockets go to any process of the user
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE, _F_NOTIFY = 8, 10, 15, 1024, 1026
# Flags, version, project, seal (fs-verity) of a file open for reading (linux/fs.h).
_FILE_FLAGS = (0x40086602, 0x40046602, 0x40087602, 0x401C5820, 0x40806685)
_SIGKILL = 9

AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_SECCOMP = {"x86_64": 317, "aarch64": 277}

# By name; names that an architecture lacks are passed over.
DENIED = (
    # other processes: their memory, descriptors, limits
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "kcmp"),
    *("pidfd_getfd", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "migrate_pages"),
    # namespaces, mounts, sessions
    *("unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen"),
    *("fsconfig", "fsmount", "fspick", "mount_setattr", "open_tree_attr", "statmount", "listmount"),
    *("setsid", "setpgid", "personality", "name_to_handle_at", "open_by_handle_at"),
    # wide doors into the kernel
    *("bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("io_setup", "io_submit", "add_key", "request_key", "keyctl", "vmsplice", "modify_ldt", "uselib"),
    *("memfd_secret", "lookup_dcookie", "_sysctl", "nfsservctl"),
    # a process of root is counted under another user (`limits.py`)
    *("setuid", "setreuid", "setresuid", "setgid", "setregid", "setresgid", "setgroups"),
    # objects that outlive a process
    *("shmget", "shmat", "shmctl", "semget", "semop", "semtimedop", "semctl"),
    *("msgget", "msgsnd", "msgrcv", "msgctl", "mq_open", "mq_unlink"),
    # the machine
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "create_module"),
    *(
        "reboot",
        "swapon",
        "swapoff",
        "acct",
        "quotactl",
        "quotactl_fd",
        "syslog",
        "vhangup",
        "iopl",
        "ioperm",
    ),
    *(
        "sethostname",
        "setdomainname",
        "settimeofday",
        "adjtimex",
        "clock_adjtime",
        "setpriority",
        "ioprio_set",
    ),
)
# What a user may change and watch of any of its files, unguarded by Landlock. A new file has the mode of its
# making, less the umask.
METADATA = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "chown", "fchown", "lchown", "fchownat"),
    *("utime", "utimes", "futimesat", "utimensat", "file_setattr"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("removexattr", "lremovexattr", "fremovexattr", "removexattrat"),
    *("inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch"),
    *("fanotify_init", "fanotify_mark"),
)
# Of this process alone: argument 0 is a process, or 0 for the caller.
SCHEDULING = ("sched_setaffinity", "sched_setscheduler", "sched_setattr", "sched_setparam")
# Bits refused in an argument: no file gets set-user-id or set-group-id.
DENIED_BITS = (
    ("creat", 1, SET_ID_BITS),
    ("open", 2, SET_ID_BITS),
    ("openat", 3, SET_ID_BITS),
    ("mknod", 1, SET_ID_BITS),
    ("mknodat", 2, SET_ID_BITS),
)
# Their arguments are in memory, unreadable to a filter: libraries fall back to clone and openat.
ABSENT = ("clone3", "openat2")
# TCP, and the list of interfaces. Not Multipath TCP, which Landlock's rules for ports miss.
TCP_SOCKETS = (
    *((family, _SOCK_STREAM, protocol) for family in (_AF_INET, _AF_INET6) for protocol in (0, 6)),
    (_AF_NETLINK, _SOCK_RAW, 0),
)
# CUDA asks for its multi-process service through one, and does not start without it; it listens at another,
# by an abstract name. No connect(2) of theirs arrives (`_restrict_sockets`).
GPU_SOCKETS = ((_AF_UNIX, _SOCK_SEQPACKET, 0),)
# Connected for good. A pair of datagram sockets sends to any socket with a path.
PAIRS = ((_AF_UNIX, _SOCK_STREAM, 0), (_AF_UNIX, _SOCK_SEQPACKET, 0))
PROCESSES = ("fork", "vfork")
PROGRAMS = ("execve", "execveat")

Instruction = tuple[int, int, int, int]


class Program:
    """Builds a filter for one architecture."""

    def __init__(self, architecture: str, names: Collection[str] | None = None) -> None:
        every = NUMBERS[architecture]
        self._numbers = every if names is None else {name: every[name] for name in names}
        self.instructions: list[Instruction] = [
            (_LOAD, 0, 0, _ARCHITECTURE),
            (_EQUAL, 1, 0, AUDIT_ARCHITECTURE[architecture]),
            (_RETURN, 0, 0, _KILL_PROCESS),
            (_LOAD, 0, 0, _NUMBER),
        ]
        if architecture == "x86_64":
            self.instructions += [(_AT_LEAST, 0, 1, _X32_BIT), (_RETURN, 0, 0, _KILL_PROCESS)]
        self.instructions += [(_GREATER, 0, 1, NEWEST), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)]

    def deny(self, names: Iterable[str], error: int = errno.EPERM) -> None:
        """Refuse calls."""
        for name in names:
            if name in self._numbers:
                self.instructions += [(_EQUAL, 0, 1, self._numbers[name]), (_RETURN, 0, 0, _ERRNO | error)]

    def deny_bits(self, name: str, argument: int, bits: int) -> None:
        """Refuse a call with any of these bits in an argument."""
        self._when(name, [_argument(argument), (_ANY_OF, 0, 1, bits), _REFUSE])

    def require_bits(self, name: str, argument: int, bits: int) -> None:
        """Refuse a call without any of these bits in an argument."""
        self._when(name, [_argument(argument), (_ANY_OF, 1, 0, bits), _REFUSE])

    def allow_values(self, name: str, argument: int, values: Iterable[int], error: int = errno.EPERM) -> None:
        """Refuse a call unless an argument's low half is one of these."""
        chosen = list(values)
        tests = [(_EQUAL, len(chosen) - at, 0, value) for at, value in enumerate(chosen)]
        self._when(name, [_argument(argument), *tests, (_RETURN, 0, 0, _ERRNO | error)])

    def require_null(self, name: str, pointer: int, *, unless: tuple[int, int] | None = None) -> None:
        """Refuse a call whose argument `pointer` is an address, unless another argument has this value."""
        end = [_REFUSE]
        if unless is not None:
            end = [_argument(unless[0]), (_EQUAL, 1, 0, unless[1]), _REFUSE]
        low, high = _argument(pointer), (_LOAD, 0, 0, _ARGUMENTS + 8 * pointer + 4)
        self._when(name, [low, (_EQUAL, 0, 2, 0), high, (_EQUAL, len(end), 0, 0), *end])

    def deny_values(self, name: str, argument: int, values: Iterable[int]) -> None:
        """Refuse a call if an argument's low half is one of these."""
        tests = [step for value in values for step in ((_EQUAL, 0, 1, value & 0xFFFFFFFF), _REFUSE)]
        self._when(name, [_argument(argument), *tests])

    def allow_option(self, name: str, option: int, value: int) -> None:
        """Refuse a call with argument 0 `option`, unless argument 1 is `value`."""
        block = [_argument(0), (_EQUAL, 0, 3, option), _argument(1), (_EQUAL, 1, 0, value), _REFUSE]
        self._when(name, block)

    def allow_sockets(self, name: str, kinds: Iterable[tuple[int, int, int]]) -> None:
        """Refuse socket(2) or socketpair(2) except of these kinds: family, type, protocol."""
        block: list[Instruction] = []
        for family, kind, protocol in kinds:
            block += [
                _argument(0),
                (_EQUAL, 0, 6, family),
                _argument(1),
                (_AND, 0, 0, _SOCK_TYPE),
                (_EQUAL, 0, 3, kind),
                _argument(2),
                (_EQUAL, 0, 1, protocol),
                (_RETURN, 0, 0, _ALLOW),
            ]
        self._when(name, [*block, _REFUSE])

    def finished(self) -> bytes:
        """The program, which allows everything else."""
        return b"".join(struct.pack("=HBBI", *step) for step in [*self.instructions, (_RETURN, 0, 0, _ALLOW)])

    def _when(self, name: str, block: list[Instruction]) -> None:
        if name in self._numbers:
            self.instructions += [(_EQUAL, 0, len(block) + 1, self._numbers[name]), *block]
            self.instructions += [(_LOAD, 0, 0, _NUMBER)]


_REFUSE: Instruction = (_RETURN, 0, 0, _ERRNO | errno.EPERM)


def _argument(number: int) -> Instruction:
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * number)


def program(
    *,
    processes: bool,
    programs: bool,
    loopback: bool,
    gpu: bool,
    strangers: Iterable[int],
    architecture: str,
    names: Collection[str] | None = None,
) -> bytes:
    """The filter of an evaluator, for its own process.

    `processes`, `programs`: it may start them. `loopback`: TCP sockets, for a training's processes. `gpu`:
    CUDA's sockets, and files in memory, whose sum no limit knows. `strangers`: processes that it may not
    signal. `architecture`: "x86_64" or "aarch64". `names`: of calls; None for all.
    """
    built = Program(architecture, names)
    built.deny((*DENIED, *METADATA))
    built.deny(ABSENT, errno.ENOSYS)
    for name, argument, bits in DENIED_BITS:
        built.deny_bits(name, argument, bits)
    for name in ("prlimit64", *SCHEDULING):
        # CUDA binds its threads by numbers unknown to a filter: that seems done.
        seems_done = gpu and name == "sched_setaffinity"
        built.allow_values(name, 0, [0, os.getpid()], 0 if seems_done else errno.EPERM)
    built.deny_values("fcntl", 1, [_F_SETOWN, _F_SETSIG, _F_SETOWN_EX, _F_SETLEASE, _F_NOTIFY])
    built.deny_values("ioctl", 1, [_TIOCSTI, _TIOCLINUX, _FIOSETOWN, _SIOCSPGRP, *_FILE_FLAGS])
    built.allow_option("prctl", _PR_SET_PDEATHSIG, _SIGKILL)
    built.allow_option("prctl", _PR_SET_DUMPABLE, 0)
    built.deny_values("prctl", 0, [_PR_SET_PTRACER])
    if not gpu:
        built.deny(["memfd_create"])
    if not programs:
        built.deny(PROGRAMS)
    _restrict_sockets(built, loopback=loopback, gpu=gpu)
    built.deny(["tkill"])  # it names a thread without its process
    if processes:
        built.deny_bits("clone", 0, CLONE_NAMESPACES)
        kept = [*strangers]
        built.deny_values("kill", 0, [-1, *kept, *(-one for one in kept)])
        built.deny_values("tgkill", 0, kept)
    else:
        built.require_bits("clone", 0, CLONE_THREAD)
        built.deny(PROCESSES)
        built.allow_values("kill", 0, [os.getpid()])
        built.allow_values("tgkill", 0, [os.getpid()])
    return built.finished()


def _restrict_sockets(built: Program, *, loopback: bool, gpu: bool) -> None:
    built.allow_sockets("socketpair", PAIRS)
    built.allow_sockets("socket", (*(TCP_SOCKETS if loopback else ()), *(GPU_SOCKETS if gpu else ())))
    built.deny(["sendmsg", "sendmmsg"])  # their addresses are in memory
    if loopback:
        # Asks for the list of interfaces by an address of its own length.
        built.require_null("sendto", 4, unless=(5, _NETLINK_ADDRESS))
        built.deny_bits("sendto", 3, _MSG_FASTOPEN)  # Connects past Landlock's rules for ports
        if gpu:  # a path has another length, unless made to fit
            built.allow_values("connect", 2, _INET_ADDRESSES, errno.ENOENT)
        return
    built.require_null("sendto", 4)
    # Without this error CUDA does not start: its multi-process service is not there.
    built.deny(["connect"], errno.ENOENT if gpu else errno.EPERM)
    if not gpu:
        built.deny(["bind", "listen", "accept", "accept4"])


def check() -> None:
    """Whether filters can be installed here. Raises Unavailable: they cannot; says why."""
    if machine() not in NUMBERS:
        raise Unavailable(
            f"no list of system calls for {machine()}; there is one for {' and '.join(NUMBERS)}"
        )
    action = ctypes.c_uint32(_KILL_PROCESS)
    try:
        syscall(
            _SECCOMP[machine()], ctypes.c_uint(_GET_ACTION_AVAILABLE), ctypes.c_uint(0), ctypes.byref(action)
        )
    except OSError as error:
        raise Unavailable(f"the kernel has no seccomp filters: {error.strerror}") from None


def install(code: bytes) -> None:
    """Apply a filter for good to this thread and its children; needs no_new_privs. Else Unavailable."""
    check()

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]

    described = Filter(len(code) // 8, code)
    try:
        syscall(
            _SECCOMP[machine()], ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(0), ctypes.byref(described)
        )
    except OSError as error:
        raise Unavailable(f"seccomp: {error.strerror}") from None
