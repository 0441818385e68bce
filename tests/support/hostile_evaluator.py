"""An evaluator whose job is hostile: it runs the attempt that the job's `name` asks for, contained as any is.

    ASSAY_EVALUATOR_COMMAND="python -P tests/support/hostile_evaluator.py"

With HOSTILE_GPU it has the policy of a machine with NVIDIA devices. With HOSTILE_USER it has a user of its
own and no other part of the containment.

The name is an attempt of `ATTEMPTS` and, behind a blank, its argument. The answer is an error report whose
message begins with "refused" or "SUCCEEDED". No torch: it starts at once.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from assay.workers.containment import contain
from assay.workers.containment.settings import from_environment
from assay.workers.containment.system_call_numbers import NUMBERS
from assay.workers.containment.template import Template
from assay.workers.evaluator_link import REPORTS, REQUESTS

LIBC = ctypes.CDLL(None, use_errno=True)
Request = dict[str, Any]


def supervisor() -> int:
    """The parent of the template, as found before the process was contained."""
    return int(os.environ["HOSTILE_SUPERVISOR"])


def call(name: str, *arguments: int) -> None:
    """A system call, with an error for its failure."""
    number = NUMBERS[os.uname().machine][name]
    LIBC.syscall.restype = ctypes.c_long
    if LIBC.syscall(number, *(ctypes.c_long(value) for value in arguments)) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def read(path: str, request: Request) -> str:
    return Path(path).read_bytes()[:100].decode(errors="replace")


def listing(path: str, request: Request) -> str:
    return str(os.listdir(path))


def write(path: str, request: Request) -> str:
    Path(path).write_text("hostile")
    return path


def truncate(path: str, request: Request) -> str:
    os.truncate(path, 0)
    return path


def environment_of(which: str, request: Request) -> str:
    return read(f"/proc/{supervisor() if which == 'supervisor' else os.getppid()}/environ", request)


def memory_of(which: str, request: Request) -> str:
    with open(f"/proc/{supervisor() if which == 'supervisor' else os.getppid()}/mem", "rb") as file:
        return str(file)


def descriptors_of(which: str, request: Request) -> str:
    return str(os.listdir(f"/proc/{supervisor() if which == 'supervisor' else os.getppid()}/fd"))


def connect(address: str, request: Request) -> str:
    host, _, port = address.partition(":")
    socket.create_connection((host, int(port)), timeout=2).close()
    return address


def connect_unix(path: str, request: Request) -> str:
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("\0" + path[1:] if path.startswith("@") else path)
    return path


def system_call(what: str, request: Request) -> str:
    """A call with nonsense for arguments: an error other than a refusal's means that the kernel did it."""
    name, *arguments = what.split(",")
    try:
        call(name, *map(int, arguments))
    except OSError as error:
        if error.errno in (errno.EPERM, errno.ENOSYS):
            raise
        return f"{name} got as far as {error}"
    return name


def signals(which: str, request: Request) -> str:
    target = {"supervisor": supervisor(), "template": os.getppid(), "all": -1}[which]
    os.kill(target, 0)
    return which


def fork(which: str, request: Request) -> str:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return str(pid)


def run(program: str, request: Request) -> str:
    return subprocess.run([program], check=True, capture_output=True).stdout.decode()


def bomb(count: str, request: Request) -> str:
    """Forks so many processes that sleep; they are ended at the first refusal."""
    children: list[int] = []
    try:
        while len(children) < int(count):
            pid = os.fork()
            if pid == 0:
                time.sleep(600)
                os._exit(0)
            children.append(pid)
        time.sleep(20)  # all of them are there to be counted
    except OSError as error:
        raise OSError(f"{error.strerror} after {len(children)} processes") from None
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return count


def threads(count: str, request: Request) -> str:
    """Starts so many threads, all asleep at once."""
    over = threading.Event()
    started: list[threading.Thread] = []
    try:
        threading.stack_size(64 << 10)
        while len(started) < int(count):
            thread = threading.Thread(target=over.wait, daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        raise OSError(f"{error} after {len(started)} threads") from None
    finally:
        over.set()
        for thread in started:
            thread.join()
    return count


def execute(program: str, request: Request) -> str:
    os.execv(program, [program])
    return program


def symlink(target: str, request: Request) -> str:
    os.symlink(target, Path(request["folder"]) / "link")
    return read(str(Path(request["folder"]) / "link"), request)


def hardlink(target: str, request: Request) -> str:
    os.link(target, Path(request["folder"]) / "hard")
    return target


def fifo(_: str, request: Request) -> str:
    os.mkfifo(Path(request["folder"]) / "fifo")
    return "fifo"


def set_user_id(_: str, request: Request) -> str:
    file = Path(request["folder"]) / "program"
    file.touch()
    os.chmod(file, stat.S_ISUID | 0o755)
    return str(file)


def mode(what: str, request: Request) -> str:
    """A file and its new mode, in octal digits."""
    path, _, given = what.rpartition(",")
    os.chmod(path, int(given, 8))
    return path


def owner(path: str, request: Request) -> str:
    os.chown(path, 65534, 65534)
    return path


def times(path: str, request: Request) -> str:
    os.utime(path, (0, 0))
    return path


def attribute(path: str, request: Request) -> str:
    os.setxattr(path, "user.assay", b"planted")
    return path


def file_flags(path: str, request: Request) -> str:
    """FS_IOC_SETFLAGS with FS_NODUMP_FL, on a file that is open for reading."""
    with open(path, "rb") as opened:
        fcntl.ioctl(opened, 0x40086602, struct.pack("l", 0x40))
    return path


def watch(path: str, request: Request) -> str:
    """All that happens to a file or in a folder."""
    descriptor = LIBC.inotify_init1(0)
    if descriptor < 0 or LIBC.inotify_add_watch(descriptor, path.encode(), 0xFFF) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return path


def affinity(pid: str, request: Request) -> str:
    before = os.sched_getaffinity(int(pid))
    os.sched_setaffinity(int(pid), {min(before)})
    if len(before) > 1 and os.sched_getaffinity(int(pid)) == before:
        raise PermissionError("it seems done, and nothing is")  # what CUDA is told
    return pid


def scheduler(pid: str, request: Request) -> str:
    os.sched_setscheduler(int(pid), os.SCHED_IDLE, os.sched_param(0))
    return pid


def owned_by(what: str, request: Request) -> str:
    """A socket whose readiness is a signal to a process: by F_SETOWN, F_SETOWN_EX or FIOSETOWN."""
    way, _, pid = what.partition(",")
    ours, theirs = socket.socketpair()
    if way == "F_SETOWN":
        fcntl.fcntl(ours, fcntl.F_SETOWN, int(pid))
    elif way == "F_SETOWN_EX":
        fcntl.fcntl(ours, 15, struct.pack("ii", 1, int(pid)))
    else:
        fcntl.ioctl(ours, 0x8901, struct.pack("i", int(pid)))
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    theirs.send(b"x")
    time.sleep(0.2)
    return what


def datagram(path: str, request: Request) -> str:
    """To a socket with a path or, after @, an abstract name, from one of a pair."""
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(b"hostile", "\0" + path[1:] if path.startswith("@") else path)
    return path


def packet(path: str, request: Request) -> str:
    """A connection as CUDA makes it; here the answer that there is nothing is a refusal, too."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ours:
        ours.connect("\0" + path[1:] if path.startswith("@") else path)
    return path


def fast_open(address: str, request: Request) -> str:
    """TCP Fast Open connects without connect(2)."""
    host, _, port = address.partition(":")
    with socket.socket() as ours:
        ours.sendto(b"hostile", socket.MSG_FASTOPEN, (host, int(port)))
    return address


def allocate(size: str, request: Request) -> str:
    return str(len(bytearray(int(size))))


def fill(size: str, request: Request) -> str:
    with (Path(request["folder"]) / "large").open("wb") as file:
        for _ in range(int(size) >> 20):
            file.write(b"\0" * (1 << 20))
    return size


def fill_with_many(count: str, request: Request) -> str:
    """Files of 1 MiB each, and then idleness, in which it could write more."""
    for number in range(int(count)):
        (Path(request["folder"]) / str(number)).write_bytes(b"\0" * (1 << 20))
    time.sleep(30)
    return count


def spin(_: str, request: Request) -> str:
    while True:
        pass


def outlive(_: str, request: Request) -> str:
    """Leaves a process that ignores all it can, and says which."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
        os._exit(0)
    (Path(request["folder"]) / "left").write_text(str(pid))
    return str(pid)


def environment(name: str, request: Request) -> str:
    """Its own, as a mapping and as the kernel shows it."""
    shown = Path("/proc/self/environ").read_bytes().decode(errors="replace")
    if name in os.environ or name in shown:
        return name
    raise PermissionError(f"no {name}")


def open_descriptors(_: str, request: Request) -> str:
    """All but the standard three, its two pipes, and the one that lists them."""
    found = {int(name) for name in os.listdir("/proc/self/fd")}
    more = {number for number in found - {0, 1, 2} if os.path.exists(f"/proc/self/fd/{number}")}
    if len(more) <= 2:
        raise PermissionError(f"only its pipes: {sorted(more)}")
    return str(sorted(more))


def normal(_: str, request: Request) -> str:
    """What a job does: none of this may be refused. Its failure is not a refusal."""
    try:
        folder, temporary = Path(request["folder"]), Path(os.environ["TMPDIR"])
        (folder / "sub").mkdir()
        (folder / "sub" / "a").write_text("x")
        (temporary / "b").write_text("y")
        (folder / "sub" / "a").rename(folder / "c")
        (temporary / "b").rename(folder / "d")
        os.mkfifo(temporary / "pipe")
        threads = [threading.Thread(target=time.sleep, args=(0,)) for _ in range(3)]
        for thread in threads:
            thread.start()
            thread.join()
        for weights in filter(None, [request["weights"]]):
            Path(weights).read_bytes()
        import sqlite3  # a library that is loaded late

        assert sqlite3.sqlite_version
        assert (folder / "c").read_text() == "x"
        assert os.environ["HOME"] == str(temporary)
    except Exception as error:
        return f"NOT: {error!r}"
    return "all of it"


ATTEMPTS: dict[str, Callable[[str, Request], str]] = {
    name: function
    for name, function in list(globals().items())
    if callable(function)
    and getattr(function, "__module__", "") == __name__
    and name not in {"supervisor", "call", "main", "serve", "from_environment", "Template", "partial"}
}


VERSIONS = {"torch": "2", "cuda": None, "nccl": None, "deterministic": True, "source_sha256": "s"}
CPU = {"device": "cpu", "name": None, "fault": None, "total": None, "free": None, "capability": None}
PASSED = {"type": "self_tested", **VERSIONS, "devices": [CPU]}


def serve(requests: int, reports: int) -> None:
    """Answer every request with what came of its attempt."""
    with os.fdopen(requests) as lines:
        for line in lines:
            request = json.loads(line)
            if request["kind"] == "self_test":
                os.write(reports, json.dumps(PASSED).encode() + b"\n")
                continue
            attempt, _, argument = request["spec"]["name"].partition(" ")
            try:
                message = f"SUCCEEDED: {ATTEMPTS[attempt](argument, request)}"
            except (OSError, MemoryError, subprocess.SubprocessError) as error:
                message = f"refused: {type(error).__name__}: {error}"
            answer = {"type": "error", "error_type": "attempt", "message": message, "retry": False}
            if attempt == "normal" and argument == "twice":
                os.write(reports, json.dumps(answer | {"message": "forged"}).encode() + b"\n")
                os.write(reports, json.dumps(answer | {"message": "forged"}).encode() + b"\nhalf a line")
            else:
                os.write(reports, json.dumps(answer).encode() + b"\n")


def main() -> None:
    """As `assay.workers.evaluator` does it, but for the work."""
    chosen = from_environment()
    assert chosen is not None
    os.environ["HOSTILE_SUPERVISOR"] = str(os.getppid())
    requests, reports = int(os.environ[REQUESTS]), int(os.environ[REPORTS])
    gpu = "HOSTILE_GPU" in os.environ
    if "HOSTILE_USER" in os.environ:
        sys.path.append(str(Path(__file__).resolve().parents[2]))
        from tests.support.mounts import open_home

        assert open_home()
        contain.contain = partial(contain.contain, parts=("user",))
        # All others are missing then: only this one is to be tried.
        contain.demanded = lambda missing, users: {one: missing[one] for one in missing if one == "user"}
    nothing: Callable[[Any], None] = lambda request: None  # noqa: E731
    Template(chosen, requests, reports, prepare=nothing, serve=serve, threads=1, gpu=gpu).run()


if __name__ == "__main__":
    sys.exit(main())
