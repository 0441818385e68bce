"""Which parts of the containment are said to be missing on older kernels; the others are held there."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment import contain as containing
from assay.workers.containment import landlock, seccomp
from assay.workers.containment.contain import PARTS, contain, in_words
from assay.workers.containment.kernel import Unavailable
from assay.workers.containment.policy import Policy
from assay.workers.containment.probe import missing_parts
from assay.workers.containment.system_call_numbers import NUMBERS
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
SINCE = {"files": 1, "truncation": 3, "devices": 5}


def policy(folder: Path, kind: str) -> Policy:
    return Policy(folder=folder, files=frozenset(), libraries=(), temporary=folder, **KINDS[kind])


def refuse(*arguments: Any, **options: Any) -> None:
    raise Unavailable("refused for the test")


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("kind", "network"),
    [(kind, True) for kind in KINDS] + [(kind, False) for kind in KINDS if "loopback" in KINDS[kind]],
)
@pytest.mark.parametrize("abi", range(8))
def test_a_part_that_the_kernel_lacks_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abi: int, kind: str, network: bool
) -> None:
    chosen = policy(tmp_path, kind)
    monkeypatch.setattr(landlock, "abi", lambda: abi)
    if not network:
        monkeypatch.setattr(containing, "enter_private_network", refuse)
    expected = {part for part, since in SINCE.items() if abi < since}
    if chosen.processes and abi < 6:
        expected.add("signals")
    if not network and abi < 4:
        expected.add("ports")
    if not network and chosen.gpu and abi < 6:
        expected.add("sockets")
    found = in_a_child(lambda: contain(chosen))
    assert set(found) == expected
    assert all(f"Landlock ABI {abi}" in why for part, why in found.items() if part != "files")


@pytest.mark.sampled
@pytest.mark.parametrize("abi", [0, 5, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_filter_of_calls_all_that_it_holds_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abi: int, kind: str
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: abi)
    monkeypatch.setattr(seccomp, "install", refuse)
    found = in_a_child(lambda: contain(policy(tmp_path, kind)))
    assert {"calls", "sockets", "metadata", "scheduling"} <= set(found) <= set(PARTS)
    assert ("signals" in found) == (abi < 6)
    assert "modes, owners" in in_words(found)


@pytest.fixture
def stranger() -> Iterator[int]:
    """A process of this user that ends by any signal, and is neither template nor supervisor."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def said(work: Callable[[], Any]) -> str:
    try:
        work()
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    return "done"


@pytest.mark.sampled
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("abi", range(8))
def test_signals_are_held_where_they_are_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stranger: int, abi: int, kind: str
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: abi)

    def work() -> list[Any]:
        missing = contain(policy(tmp_path, kind))
        return ["signals" in missing, said(lambda: os.kill(stranger, 0))]

    missing, tried = in_a_child(work)
    assert tried == ("done" if missing else "EPERM")


@pytest.mark.sampled
@pytest.mark.parametrize("abi", range(8))
def test_truncation_is_held_where_it_is_not_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, abi: int
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: abi)
    other = tmp_path / "other"
    other.write_text("x")
    (tmp_path / "job").mkdir()

    def work() -> list[Any]:
        missing = contain(policy(tmp_path / "job", "evaluation"))
        return ["truncation" in missing, said(lambda: os.truncate(other, 0))]

    missing, tried = in_a_child(work)
    assert tried == ("done" if missing else "EACCES")


@pytest.mark.parametrize("kind", KINDS)
def test_no_kernel_lets_a_job_signal_its_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """By process, by its group, by its thread: a filter knows the parent of the evaluator and its parent."""
    monkeypatch.setattr(landlock, "abi", lambda: 5)
    libc = ctypes.CDLL(None, use_errno=True)
    calls = NUMBERS[os.uname().machine]

    def asked(name: str, *arguments: int) -> str:
        failed = libc.syscall(calls[name], *arguments) < 0
        return errno.errorcode[ctypes.get_errno()] if failed else "done"

    def work() -> list[str]:
        parent = os.getppid()
        contain(policy(tmp_path, kind))
        return [
            said(lambda: os.kill(parent, 0)),
            said(lambda: os.kill(-parent, 0)),
            said(lambda: os.kill(-1, 0)),
            asked("tgkill", parent, parent, 0),
            asked("tkill", parent, 0),
        ]

    assert in_a_child(work) == ["EPERM"] * 5
