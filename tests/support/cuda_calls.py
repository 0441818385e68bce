"""What CUDA does when it starts, without CUDA: the files, sockets and calls that it made on an H100.

`cuInit` and a first kernel of torch 2.11 (CUDA 13.0, driver 580) were traced there. All but the driver's own
ioctls is here, in a tree of device files that answer as `/dev/zero` does.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
import select
import socket
import stat
import termios
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support.mounts import mount_tmpfs, private_mounts

DEVICES = tuple(
    Path("/dev", name)
    for name in ("nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2")
)
# Of the driver: they exist where its devices do.
OF_THE_DRIVER = (
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/capabilities/mig/config",
    "/proc/driver/nvidia/capabilities/mig/monitor",
    "/sys/module/nvidia/initstate",
    "/sys/module/nvidia_uvm/initstate",
    "/etc/nvidia/nvidia-application-profiles-rc",
)
OF_THE_KERNEL = (
    "/proc/devices",
    *(f"/proc/self/{name}" for name in ("maps", "stat", "status", "environ")),
    *("/proc/cpuinfo", "/proc/sys/vm/mmap_min_addr"),
)
FOLDERS = (
    "/proc/self/task",
    "/sys/devices/system/cpu",
    "/sys/devices/system/memory",
    "/sys/devices/system/node",
)
MULTI_PROCESS_SERVICE = "/tmp/nvidia-mps/control"
NUMBERS = {"x86_64": {"mbind": 237, "get_mempolicy": 239}, "aarch64": {"mbind": 235, "get_mempolicy": 236}}
_LIBC = ctypes.CDLL(None, use_errno=True)


def make_tree() -> bool:
    """Gives this process the files of a driver, in mounts of its own; False where it may not have them."""
    if not private_mounts():
        return False
    mount_tmpfs("/dev")
    os.mkdir("/dev/shm")
    os.mkdir("/dev/char")
    os.symlink("../nvidia0", "/dev/char/195:0")
    for name, minor in (("null", 3), ("zero", 5), ("full", 7), ("random", 8), ("urandom", 9)):
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(1, minor))
    for device in DEVICES:
        device.parent.mkdir(exist_ok=True)
        os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 5))
        device.chmod(0o666)
    for folder in ("/proc/driver", "/sys/module", "/etc"):
        mount_tmpfs(folder)
    for name in OF_THE_DRIVER:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("live\n")
    return True


def replay(*, driver: bool) -> dict[str, str]:
    """What came of each step: "done", or the name of its error.

    Args:
        driver: the files of the driver are there (`make_tree`).
    """
    return {name: _outcome(step) for name, step in _steps(driver)}


def expected(*, driver: bool) -> dict[str, set[str]]:
    """What CUDA goes on after; it ends in error 304 after any other outcome."""
    done = {key: {"done"} for key in (name for name, _ in _steps(driver))}
    # Where no multi-process service runs; other errors end in 304.
    done["connect to the multi-process service"] = {"ENOENT"}
    if os.getuid() != 0:  # a process that cannot be dumped has one of root's; a program that it starts can be
        done["read /proc/self/environ"] = {"EACCES", "done"}
    done["clone3"] = {"ENOSYS"}  # it falls back to clone
    done |= {f"ioctl on {device}": {"ENOTTY"} for device in DEVICES if driver}  # of `/dev/zero`: it was asked
    # A kernel without NUMA has neither; the driver looks for traces of a debugger.
    done |= {key: {"done", "ENOSYS"} for key in ("mbind", "get_mempolicy")}
    done["open /dev/shm/cuda_injection_path_shm"] = {"ENOENT"}
    done["stat /dev/char/195:0"] = {"done", "ENOENT"}
    for change in ("unlink", "symlink"):  # both fail without harm
        done[f"{change} /dev/char/195:0"] = {"EACCES", "EEXIST", "ENOENT"}
    return done


def _steps(driver: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in (*OF_THE_KERNEL, *(OF_THE_DRIVER if driver else ())):
        yield f"read {name}", lambda name=name: Path(name).read_bytes()  # type: ignore[misc]
    for name in FOLDERS:
        if Path(name).exists():
            yield f"list {name}", lambda name=name: os.listdir(name)  # type: ignore[misc]
    for device in DEVICES if driver else ():
        yield f"open {device}", lambda device=device: _mapped(device)  # type: ignore[misc]
        yield f"ioctl on {device}", lambda device=device: _asked(device)  # type: ignore[misc]
    yield (
        "open /dev/shm/cuda_injection_path_shm",
        lambda: os.open("/dev/shm/cuda_injection_path_shm", os.O_RDWR | os.O_CLOEXEC),
    )
    yield "stat /dev/char/195:0", lambda: os.stat("/dev/char/195:0")
    yield "unlink /dev/char/195:0", lambda: os.unlink("/dev/char/195:0")
    yield "symlink /dev/char/195:0", lambda: os.symlink("../nvidia0", "/dev/char/195:0")
    yield "name its first thread", lambda: _named(threading.get_native_id())
    yield "name another thread", _other_thread_named
    yield "connect to the multi-process service", _connected
    yield "listen for the descriptors of other processes", _listening
    yield "write the cache of kernels", _cached
    for name, numbers in NUMBERS[os.uname().machine].items():
        yield name, lambda numbers=numbers: _call(numbers, 0, 0, 0, 0, 0, 0)  # type: ignore[misc]
    yield "clone3", lambda: _call(435, 0, 0)
    yield "sched_setaffinity", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0))
    yield "sched_setaffinity by number", lambda: os.sched_setaffinity(os.getpid(), os.sched_getaffinity(0))
    yield "sched_setaffinity of another thread", _other_thread_bound
    yield "eventfd2", lambda: os.close(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))
    yield "epoll", lambda: select.epoll().close()
    yield "pipe2", lambda: [os.close(end) for end in os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)]


def _outcome(step: Callable[[], object]) -> str:
    try:
        step()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


def _call(number: int, *arguments: int) -> None:
    _LIBC.syscall.restype = ctypes.c_long
    if _LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def _mapped(device: Path) -> None:
    opened = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    mmap.mmap(opened, 4096, mmap.MAP_PRIVATE).close()
    os.close(opened)


def _asked(device: Path) -> None:
    with device.open("rb") as opened:
        fcntl.ioctl(opened, termios.TCGETS, bytes(64))


def _named(thread: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    opened = os.open(f"/proc/self/task/{thread}/comm", flags, 0o666)
    try:
        os.write(opened, b"cuda00001400006")
    finally:
        os.close(opened)


def _other_thread_named() -> None:
    _with_another_thread(_named)


def _other_thread_bound() -> None:
    _with_another_thread(lambda thread: os.sched_setaffinity(thread, os.sched_getaffinity(0)))


def _with_another_thread(work: Callable[[int], None]) -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        work(thread.native_id or 0)
    finally:
        over.set()
        thread.join()


def _packets() -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC, 0)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return made


def _connected() -> None:
    with _packets() as asking:
        asking.connect(MULTI_PROCESS_SERVICE)


def _listening() -> None:
    namespace = os.stat("/proc/self/ns/pid").st_ino
    with _packets() as listening:
        listening.bind(f"\0cuda-uvmfd-{namespace}-{os.getpid()}")
        listening.listen(16)


def _cached() -> None:
    folder = Path(os.environ.get("CUDA_CACHE_PATH", Path("~/.nv/ComputeCache").expanduser()))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "index").write_bytes(b"\0" * 16)
