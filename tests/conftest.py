"""Rules of every test: no network, one thread, a fixed seed, no training without its mark."""

from __future__ import annotations

import os

# Before torch or numpy is imported anywhere, and inherited by the processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
# Not what the developer has pulled.
os.environ["ASSAY_WEIGHTS_ROOT"] = "/nonexistent/assay-weights"
os.environ.setdefault("MPLBACKEND", "Agg")
# Jobs of tests end without a process that renders; tests of plots start their own.
os.environ.setdefault("ASSAY_RENDER_PLOTS", "no")

import gc
import ipaddress
import random
import socket
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.object_stores import moto_server
from tests.support.sampling import PARTS, changed_files, costly_left_out, left_out, part_of_commit

LOCAL_NAMES = {"", "localhost"}


class NetworkBlockedError(RuntimeError):
    """A test accessed an address outside this machine."""


class UnmarkedTrainingError(RuntimeError):
    """A test trained a network without the mark."""


def _is_local(host: object) -> bool:
    if host is None or isinstance(host, bytes):
        return host in (None, b"", b"localhost", b"127.0.0.1", b"::1")
    if not isinstance(host, str):
        return False
    if host in LOCAL_NAMES:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _refuse(sock: socket.socket, address: Any) -> None:
    if sock.family in (socket.AF_INET, socket.AF_INET6) and not _is_local(address[0]):
        raise NetworkBlockedError(f"tests may connect to this machine only, not to {address!r}")


@pytest.fixture(autouse=True, scope="session")
def no_network() -> Iterator[None]:
    """Sockets reach loopback addresses and Unix sockets only, and names resolve only for localhost."""
    patch = pytest.MonkeyPatch()
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
    getaddrinfo = socket.getaddrinfo

    def guarded_connect(self: socket.socket, address: Any) -> None:
        _refuse(self, address)
        connect(self, address)

    def guarded_connect_ex(self: socket.socket, address: Any) -> int:
        _refuse(self, address)
        return connect_ex(self, address)

    def guarded_getaddrinfo(host: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_local(host):
            raise NetworkBlockedError(f"tests may look up this machine only, not {host!r}")
        return getaddrinfo(host, *args, **kwargs)

    patch.setattr(socket.socket, "connect", guarded_connect)
    patch.setattr(socket.socket, "connect_ex", guarded_connect_ex)
    patch.setattr(socket, "getaddrinfo", guarded_getaddrinfo)
    yield
    patch.undo()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of an S3 server."""
    with moto_server() as address:
        yield address


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected and imported stays: each search of it for garbage would take half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--sample NUMBER/OF`: one part of the tests, by a hash of their names. `--part`: cases of laws."""
    parser.addoption("--sample", default="0/1", help="run part NUMBER of OF parts, for example 0/2")
    parser.addoption("--part", help=f"cases of laws: part 0 to {PARTS - 1} (default: by the commit), or all")


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the part once, for the processes of pytest-xdist as well; a file that is named is run whole."""
    part = config.getoption("part")
    if part not in (None, "all", *map(str, range(PARTS))):
        raise pytest.UsageError(f"--part is 0 to {PARTS - 1} or all; got {part!r}")
    if part is None:
        config.option.part = "all" if all(".py" in arg for arg in config.args) else str(part_of_commit())


def pytest_report_header(config: pytest.Config) -> str:
    """Enough to repeat the run."""
    return f"cases of laws, and costly tests: --part {config.option.part} (of {PARTS}, or all)"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks laws' cases and costly tests of another part `slow`; leaves out what `--sample` does not choose.

    In a part of `--sample` the cases of a test stay together.
    """
    if config.option.part != "all":
        part, changed = int(config.option.part), changed_files()
        laws = [item.nodeid for item in items if item.get_closest_marker("sampled")]
        quick = [item for item in items if not item.get_closest_marker("slow")]
        costly = [item.nodeid for item in quick if item.get_closest_marker("costly")]
        others = left_out(laws, part, changed) | costly_left_out(costly, part, changed)
        for item in items:
            if item.nodeid in others:
                item.add_marker("slow")
    number, of = map(int, config.getoption("sample").split("/"))
    if not 0 <= number < of:
        raise pytest.UsageError(f"--sample is NUMBER/OF, with NUMBER in [0, OF); got {number}/{of}")
    parts: tuple[list[pytest.Item], list[pytest.Item]] = ([], [])
    for item in items:
        parts[zlib.crc32(item.nodeid.partition("[")[0].encode()) % of == number].append(item)
    if parts[0]:
        config.hook.pytest_deselected(items=parts[0])
        items[:] = parts[1]


def pytest_unconfigure() -> None:
    """Let the interpreter's end find what it would have found."""
    gc.unfreeze()


def _refuse_training(optimizer: Any, *_: object) -> None:
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    if any(isinstance(weight, sys.modules["torch"].nn.Parameter) for weight in weights):
        raise UnmarkedTrainingError("load a network of tests/support/networks.py, or mark the test `trains`")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Only a test with the mark `trains` may change weights: `make test-portable` runs those."""
    if "torch" not in sys.modules or item.get_closest_marker("trains"):
        return (yield)
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    handle = register_optimizer_step_pre_hook(_refuse_training)
    try:
        return (yield)
    finally:
        handle.remove()


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """No test leaves tracing on: all Python after it would take many times as long."""
    before = sys.gettrace(), sys.getprofile()
    yield
    traced = tracemalloc.is_tracing()
    tracemalloc.stop()
    assert not traced, "the test left tracemalloc running"
    assert (sys.gettrace(), sys.getprofile()) == before, "the test left a trace function"


@pytest.fixture(autouse=True)
def seeded() -> None:
    """The same global random state at the start of every test, and one torch thread.

    torch and numpy are not imported for tests that do not use them.
    """
    random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
        torch.set_num_threads(1)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)
