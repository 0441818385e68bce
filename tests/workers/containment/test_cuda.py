"""CUDA's start under the containment, without a GPU: its calls are made, and each must go as it needs.

An H100 showed that no job on a GPU ran: two rules, each alone, ended `cuInit` in error 304.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment import contain as containing
from assay.workers.containment import landlock, seccomp
from assay.workers.containment.contain import contain
from assay.workers.containment.limits import Limits
from assay.workers.containment.policy import Policy, libraries
from assay.workers.containment.probe import missing_parts
from assay.workers.containment.template import TEMPORARY
from assay.workers.containment.users import Users
from tests.support import cuda_calls
from tests.support.children import in_a_child
from tests.support.mounts import open_home

pytestmark = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")
KINDS: dict[str, dict[str, bool]] = {
    "evaluation": {},
    "training": {"processes": True},
    "training on several GPUs": {"processes": True, "loopback": True},
}
NAMING = {"name its first thread", "name another thread"}
SOCKETS = {"connect to the multi-process service", "listen for the descriptors of other processes"}


def of_a_gpu(folder: Path, **changes: Any) -> Policy:
    values: dict[str, Any] = {"files": frozenset(), "libraries": (), "temporary": folder, "gpu": True}
    return Policy(folder=folder, **(values | changes))


def wrong(folder: Path, **kind: bool) -> dict[str, str]:
    """The steps of CUDA's start that go otherwise than it needs."""

    def start() -> dict[str, str]:
        os.environ.update(dict.fromkeys(TEMPORARY, str(folder)))
        driver = cuda_calls.make_tree()
        assert contain(of_a_gpu(folder, **kind)) == {}
        needed = cuda_calls.expected(driver=driver)
        found = cuda_calls.replay(driver=driver)
        return {name: said for name, said in found.items() if said not in needed[name]}

    result = in_a_child(start)
    assert isinstance(result, dict), result
    return result


@pytest.mark.parametrize("kind", KINDS)
def test_cuda_starts(tmp_path: Path, kind: str) -> None:
    assert wrong(tmp_path, **KINDS[kind]) == {}


def test_all_of_it_is_replayed_where_root_allows_it() -> None:
    """Without the tree only what every machine has is tried."""
    if os.getuid() != 0:
        pytest.skip("needs root, for mounts of its own")
    assert in_a_child(cuda_calls.make_tree) is True
    named = cuda_calls.expected(driver=True)
    assert {f"open {device}" for device in cuda_calls.DEVICES} <= set(named)
    assert set(named) >= NAMING | SOCKETS


def test_without_truncation_of_its_threads_names_it_would_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of the two rules, as it was."""
    rights = containing._gpu_rights

    def before(**options: bool) -> Any:
        for path, right in rights(**options):
            yield path, right & ~landlock.Right.TRUNCATE

    monkeypatch.setattr(containing, "_gpu_rights", before)
    assert wrong(tmp_path) == dict.fromkeys(NAMING, "EACCES")


def test_without_sockets_it_would_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one."""
    monkeypatch.setattr(seccomp, "GPU_SOCKETS", ())
    assert wrong(tmp_path) == dict.fromkeys(SOCKETS, "EPERM")


def test_its_cache_of_kernels_is_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "CUDA_CACHE_PATH" in TEMPORARY
    monkeypatch.setitem(wrong.__globals__, "TEMPORARY", ())
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert wrong(tmp_path) == {"write the cache of kernels": "EACCES"}


RANK = """
import json, sys
from tests.support import cuda_calls
print(json.dumps(cuda_calls.replay(driver=sys.argv[1] == "True")))
"""


def in_ranks(users: Users | None) -> list[dict[str, str]]:
    """The steps that go wrong in each of two programs that a training on several GPUs has started."""

    def start(name: str) -> list[dict[str, str]]:
        assert open_home()
        driver = cuda_calls.make_tree()
        root = Path(__file__).resolve().parents[3]
        environment = os.environ | dict.fromkeys(TEMPORARY, name) | {"PYTHONPATH": str(root)}
        chosen = of_a_gpu(Path(name), libraries=(*libraries(environment, []), root), users=users)
        missing = contain(replace(chosen, processes=True, loopback=True))
        assert missing == {}, missing
        needed = cuda_calls.expected(driver=driver)
        command = [sys.executable, "-P", "-c", RANK, str(driver)]
        ranks = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) for _ in range(2)]
        answers = [json.loads(rank.communicate()[0]) for rank in ranks]
        return [{key: said for key, said in one.items() if said not in needed[key]} for one in answers]

    with tempfile.TemporaryDirectory() as folder:
        found = in_a_child(partial(start, folder))
    assert isinstance(found, list), found
    return found


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_cuda_starts_in_the_processes_of_a_training_of_its_own_user() -> None:
    """Their numbers are unknown when Landlock's rules are made; without such a user they name no thread."""
    assert in_ranks(Users(1_900_000_000, 1 << 24)) == [{}, {}]
    assert in_ranks(None) == [dict.fromkeys(NAMING, "EACCES")] * 2


def said(work: Callable[[], Any]) -> str:
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


@pytest.mark.parametrize("kind", KINDS)
def test_its_sockets_reach_nothing(tmp_path: Path, kind: str) -> None:
    """Servers with a path and without, of packets as CUDA's sockets are, which would take a connection."""
    place, abstract = str(tmp_path / "server"), f"\0assay-test-{os.getpid()}-{kind}"

    def tried() -> dict[str, str]:
        contain(of_a_gpu(tmp_path / "job", **KINDS[kind]))
        found: dict[str, str] = {}
        for name, address in (("path", place), ("abstract", abstract)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ours:
                found[f"connect {name}"] = said(lambda ours=ours, address=address: ours.connect(address))
                found[f"sendto {name}"] = said(lambda ours=ours, address=address: ours.sendto(b"x", address))
                found[f"sendmsg {name}"] = said(
                    lambda ours=ours, address=address: ours.sendmsg([b"x"], [], 0, address)
                )
        for family, type_ in (
            ("AF_UNIX", "SOCK_STREAM"),
            ("AF_UNIX", "SOCK_DGRAM"),
            ("AF_INET", "SOCK_DGRAM"),
        ):
            made = lambda family=family, type_=type_: socket.socket(  # noqa: E731
                getattr(socket, family), getattr(socket, type_)
            )
            found[f"{family} {type_}"] = said(made)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as ours:
            found["bind"] = said(lambda: ours.bind(str(tmp_path / "job" / "socket")))
        return found

    (tmp_path / "job").mkdir()
    packets = socket.SOCK_SEQPACKET
    with socket.socket(socket.AF_UNIX, packets) as named, socket.socket(socket.AF_UNIX, packets) as other:
        for server, address in ((named, place), (other, abstract)):
            server.bind(address)
            server.listen()
        found = in_a_child(tried)
    assert found == {
        **{f"connect {name}": "ENOENT" for name in ("path", "abstract")},
        **{f"{call} {name}": "EPERM" for call in ("sendto", "sendmsg") for name in ("path", "abstract")},
        **dict.fromkeys(("AF_UNIX SOCK_STREAM", "AF_UNIX SOCK_DGRAM", "AF_INET SOCK_DGRAM"), "EPERM"),
        "bind": "EACCES",
    }


def test_limits_hold_on_a_gpu(tmp_path: Path) -> None:
    """Private data is limited, addresses are not; a file in memory is one whose size is limited."""
    chosen = Limits(memory=1 << 28, processor_seconds=100, file_bytes=8 << 20)
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

    def in_memory() -> None:
        descriptor = os.memfd_create("file")
        os.truncate(descriptor, 16 << 20)

    def work() -> list[Any]:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        missing = contain(of_a_gpu(tmp_path, limits=chosen))
        return [
            missing,
            said(lambda: mmap.mmap(-1, 1 << 34, private, mmap.PROT_READ)),
            said(lambda: mmap.mmap(-1, 1 << 29, private)),
            said(in_memory),
        ]

    assert in_a_child(work) == [{}, "done", "ENOMEM", "EFBIG"]
