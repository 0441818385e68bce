"""What a process may do to files, sockets and processes of its user, without the containment and in it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import signal
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment import contain as containing
from assay.workers.containment.contain import contain
from assay.workers.containment.kernel import Unavailable
from assay.workers.containment.policy import Policy
from assay.workers.containment.probe import missing_parts
from tests.support.children import in_a_child

pytestmark = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")
KINDS: dict[str, dict[str, bool]] = {
    "evaluation": {},
    "evaluation on a GPU": {"gpu": True},
    "training": {"processes": True},
    "training on a GPU": {"processes": True, "gpu": True},
    "training on several devices": {"processes": True, "loopback": True},
    "training on several GPUs": {"processes": True, "loopback": True, "gpu": True},
}
LIBC = ctypes.CDLL(None, use_errno=True)
WATCH_ALL = 0xFFF
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, NO_DUMP = 0x80086601, 0x40086602, 0x40
FIOSETOWN, SIOCSPGRP, F_SETOWN_EX = 0x8901, 0x8902, 15


def in_a_job(folder: Path, kind: str, work: Callable[[], Any]) -> Any:
    """What a function returns in a process that is contained as an evaluator of a job of that kind is."""
    job = folder / "job"
    job.mkdir(exist_ok=True)
    chosen = Policy(folder=job, files=frozenset(), libraries=(folder / "data",), temporary=job, **KINDS[kind])

    def contained() -> Any:
        assert contain(chosen) == {}
        return work()

    return in_a_child(contained)


def said(work: Callable[[], Any]) -> str:
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def watched(path: Path) -> None:
    checked(LIBC.inotify_add_watch(checked(LIBC.inotify_init1(0)), os.fsencode(path), WATCH_ALL))


def flags_set(path: Path) -> None:
    with path.open("rb") as opened:
        before = struct.unpack("l", fcntl.ioctl(opened, FS_IOC_GETFLAGS, bytes(8)))[0]
        fcntl.ioctl(opened, FS_IOC_SETFLAGS, struct.pack("l", before | NO_DUMP))


def on_a_file(path: Path) -> dict[str, Callable[[], Any]]:
    """Each call on a file of the user."""
    return {
        "chmod": lambda: path.chmod(0o600),
        "chmod of the folder": lambda: path.parent.chmod(0o700),
        "chown": lambda: os.chown(path, os.getuid(), os.getgid()),
        "lchown": lambda: os.lchown(path, os.getuid(), os.getgid()),
        "utime": lambda: os.utime(path, (1, 1)),
        "setxattr": lambda: os.setxattr(path, "user.assay", b"x"),
        "removexattr": lambda: os.removexattr(path, "user.assay"),
        "inotify": lambda: watched(path.parent),
        "flags": lambda: flags_set(path),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_of_a_file_stays_as_it_is(tmp_path: Path, kind: str) -> None:
    """Even of one that the job may read, and of its own."""
    data = tmp_path / "data" / "images"
    data.parent.mkdir()
    data.write_text("x")
    data.chmod(0o640)
    os.utime(data, (1000, 1000))
    free = {name: said(work) for name, work in on_a_file(data).items()}
    supported = {name for name, result in free.items() if result == "done"}
    assert {"chmod", "chown", "utime", "inotify"} <= supported, "without the containment all of it is allowed"
    data.chmod(0o640)
    data.parent.chmod(0o755)
    os.utime(data, (1000, 1000))
    before = (data.stat().st_mode, data.stat().st_mtime, data.parent.stat().st_mode)

    def work() -> dict[str, str]:
        own = tmp_path / "job" / "own"
        own.write_text("x")
        found = {name: said(call) for name, call in on_a_file(data).items()}
        descriptor = os.open(own, os.O_RDWR)
        own_calls: dict[str, Callable[[], Any]] = {
            "fchmod": lambda: os.fchmod(descriptor, 0o600),
            "fchown": lambda: os.fchown(descriptor, os.getuid(), os.getgid()),
            "futimens": lambda: os.utime(descriptor, (1, 1)),
            "fsetxattr": lambda: os.setxattr(descriptor, "user.assay", b"x"),
        }
        return found | {name: said(call) for name, call in own_calls.items()}

    found = in_a_job(tmp_path, kind, work)
    assert found == dict.fromkeys(found, "EPERM")
    assert (data.stat().st_mode, data.stat().st_mtime, data.parent.stat().st_mode) == before


def test_files_that_a_job_makes_have_the_modes_of_its_umask(tmp_path: Path) -> None:
    def work() -> dict[str, str]:
        os.umask(0o022)
        job = tmp_path / "job"
        (job / "plain").write_text("x")
        shutil.copyfile(job / "plain", job / "copied")
        (job / "plain").touch()
        with tempfile.NamedTemporaryFile(dir=job, delete=False) as file:
            os.replace(file.name, job / "temporary")
        shutil.move(job / "copied", job / "moved")
        with tempfile.TemporaryDirectory(dir=job) as folder:
            Path(folder, "inner").write_text("x")
        found = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in sorted(job.iterdir())}
        return found | {"copy": said(lambda: shutil.copy(job / "plain", job / "other"))}

    found = in_a_job(tmp_path, "evaluation", work)
    assert found == {"moved": "0o644", "plain": "0o644", "temporary": "0o600", "copy": "EPERM"}


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of this user that ends by SIGIO, and is neither template nor supervisor."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        while True:
            signal.pause()
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def on_a_process(pid: int) -> dict[str, Callable[[], Any]]:
    return {
        "affinity": lambda: os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))}),
        "scheduler": lambda: os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0)),
        "parameters": lambda: os.sched_setparam(pid, os.sched_param(0)),
        "nice": lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_the_scheduling_of_others_is_theirs(tmp_path: Path, stranger: int, kind: str) -> None:
    (tmp_path / "data").mkdir()
    free = {name: said(work) for name, work in on_a_process(stranger).items()}
    assert free == dict.fromkeys(free, "done"), "without the containment all of it is allowed"

    def work() -> list[dict[str, str]]:
        others = {name: said(call) for name, call in on_a_process(stranger).items()}
        own = {name: said(call) for name, call in on_a_process(os.getpid()).items() if name != "nice"}
        caller = {name: said(call) for name, call in on_a_process(0).items() if name != "nice"}
        return [others, own, caller]

    before = os.sched_getaffinity(stranger)
    others, own, caller = in_a_job(tmp_path, kind, work)
    # CUDA binds threads by their numbers, and would not start after an error: nothing is done.
    assert others == dict.fromkeys(others, "EPERM") | ({"affinity": "done"} if KINDS[kind].get("gpu") else {})
    assert os.sched_getaffinity(stranger) == before
    assert own == caller == dict.fromkeys(own, "done")


def signalled(how: str, pid: int) -> None:
    """A socket tells a process of its readiness, by SIGIO."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        if how == "F_SETOWN":
            fcntl.fcntl(ours, fcntl.F_SETOWN, pid)
        elif how == "F_SETOWN_EX":
            fcntl.fcntl(ours, F_SETOWN_EX, struct.pack("ii", 1, pid))
        else:
            fcntl.ioctl(ours, {"FIOSETOWN": FIOSETOWN, "SIOCSPGRP": SIOCSPGRP}[how], struct.pack("i", pid))
        fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        theirs.send(b"x")


@pytest.mark.sampled
@pytest.mark.parametrize("abi", [0, 5, 7])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["F_SETOWN", "F_SETOWN_EX", "FIOSETOWN", "SIOCSPGRP"])
def test_no_descriptor_signals_another_process(
    tmp_path: Path, stranger: int, kind: str, how: str, abi: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With Landlock's rule for signals and without: below ABI 6 a socket ended any process of the user."""
    monkeypatch.setattr(containing.landlock, "abi", lambda: abi)
    chosen = Policy(folder=tmp_path, files=frozenset(), libraries=(), temporary=tmp_path, **KINDS[kind])

    def work() -> str:
        contain(chosen)
        return said(lambda: signalled(how, stranger))

    assert in_a_child(work) == "EPERM"
    time.sleep(0.05)
    assert os.waitpid(stranger, os.WNOHANG) == (0, 0)


@pytest.mark.parametrize("how", ["F_SETOWN", "F_SETOWN_EX", "FIOSETOWN", "SIOCSPGRP"])
def test_without_the_containment_a_descriptor_does(how: str) -> None:
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGIO, signal.SIG_DFL)
        while True:
            signal.pause()
    time.sleep(0.2)
    signalled(how, pid)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGIO


@pytest.mark.parametrize("call", [fcntl.F_SETSIG, fcntl.F_SETLEASE, fcntl.F_NOTIFY])
def test_no_descriptor_chooses_a_signal_or_tells_of_others(tmp_path: Path, call: int) -> None:
    """A lease holds up who opens the file to write; F_NOTIFY tells what happens in a folder."""
    (tmp_path / "data").mkdir()
    value = 0 if call == fcntl.F_SETSIG else fcntl.F_RDLCK if call == fcntl.F_SETLEASE else fcntl.DN_CREATE
    place = tmp_path / "data"
    if call == fcntl.F_SETLEASE:
        place = place / "file"
        place.write_text("x")

    def work() -> str:
        return said(lambda: fcntl.fcntl(os.open(place, os.O_RDONLY), call, value))

    assert in_a_child(work) == "done"
    assert in_a_job(tmp_path, "evaluation", work) == "EPERM"


@pytest.fixture
def log_socket(tmp_path: Path) -> Iterator[socket.socket]:
    """Takes any datagram, as a log does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(tmp_path / "log"))
        server.settimeout(0.05)
        yield server


def sent(path: str, how: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        if how == "sendto":
            ours.sendto(b"x", path)
        elif how == "sendmsg":
            ours.sendmsg([b"x"], [], 0, path)
        else:
            ours.connect(path)
            ours.send(b"x")


@pytest.mark.sampled
@pytest.mark.parametrize("how", ["sendto", "sendmsg", "connect"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pair_reaches_its_own_end_alone(
    tmp_path: Path, log_socket: socket.socket, kind: str, how: str
) -> None:
    (tmp_path / "data").mkdir()
    path = str(tmp_path / "log")
    sent(path, how)
    assert log_socket.recv(1) == b"x", "without the containment it comes"
    assert in_a_job(tmp_path, kind, lambda: said(lambda: sent(path, how))) == "EPERM"
    with pytest.raises(TimeoutError):
        log_socket.recv(1)

    def works() -> list[Any]:
        found: list[Any] = []
        for type_ in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
            ours, theirs = socket.socketpair(socket.AF_UNIX, type_ | socket.SOCK_CLOEXEC)
            ours.send(b"x")
            again = said(lambda ours=ours: ours.connect(path))  # type: ignore[misc]
            found.append([theirs.recv(1).decode(), again in {"EPERM", "ENOENT", "EISCONN", "EPROTOTYPE"}])
        return found

    assert in_a_job(tmp_path, kind, works) == [["x", True], ["x", True]]


def refuse(*arguments: Any, **options: Any) -> None:
    raise Unavailable("refused for the test")


@pytest.mark.costly
def test_fast_open_does_not_connect_past_the_rules_for_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training on several devices in the machine's own network: Landlock sees no connect(2) there."""
    monkeypatch.setattr(containing, "enter_private_network", refuse)
    (tmp_path / "data").mkdir()

    def opened(port: int, how: str) -> None:
        with socket.socket() as ours:
            if how == "sendto":
                ours.sendto(b"x", socket.MSG_FASTOPEN, ("127.0.0.1", port))
            else:
                ours.sendmsg([b"x"], [], socket.MSG_FASTOPEN, ("127.0.0.1", port))

    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = next(port for port in range(20000, 32000) if server.connect_ex(("127.0.0.1", port)) != 0)
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(0.2)
        opened(port, "sendto")
        server.accept()[0].close()
        for how in ("sendto", "sendmsg"):
            found = in_a_job(
                tmp_path, "training on several devices", lambda how=how: said(lambda: opened(port, how))
            )
            assert found == "EPERM"
        with pytest.raises(TimeoutError):
            server.accept()
