"""Landlock's part of the containment alone, without the filter of calls that refuses much of it too."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.workers.containment import landlock, seccomp
from assay.workers.containment.contain import contain
from assay.workers.containment.kernel import Unavailable
from assay.workers.containment.policy import Policy
from assay.workers.containment.probe import missing_parts
from tests.support.children import in_a_child

pytestmark = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")


def tried(folder: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[], Any]) -> str:
    """The name of the error of some work in a job's folder; "done" without any."""

    def missing(*_: Any) -> None:
        raise Unavailable("left out for the test")

    monkeypatch.setattr(seccomp, "install", missing)
    chosen = Policy(folder=folder, files=frozenset(), libraries=(), temporary=folder / "temporary")

    def contained() -> str:
        contain(chosen)
        try:
            work()
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        return "done"

    return str(in_a_child(contained))


@pytest.mark.costly
def test_a_job_writes_files_and_no_links_pipes_or_sockets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service serves the files of a job: it would follow a link out of the folder, and wait at a pipe."""
    (tmp_path / "temporary").mkdir()

    def bound() -> None:
        with socket.socket(socket.AF_UNIX) as one:
            one.bind(str(tmp_path / "socket"))

    assert tried(tmp_path, monkeypatch, lambda: (tmp_path / "file").write_text("x")) == "done"
    assert tried(tmp_path, monkeypatch, lambda: os.symlink("/etc/passwd", tmp_path / "link")) == "EACCES"
    assert tried(tmp_path, monkeypatch, lambda: os.mkfifo(tmp_path / "pipe")) == "EACCES"
    assert tried(tmp_path, monkeypatch, bound) == "EACCES"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "temporary"]
    pipe = tmp_path / "temporary" / "pipe"
    assert tried(tmp_path, monkeypatch, lambda: os.mkfifo(pipe)) == "done", "libraries use pipes there"


def test_abstract_sockets_of_others_are_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"\0assay-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()

        def connect() -> None:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(name)

        assert tried(tmp_path, monkeypatch, connect) == "EPERM"


def test_devices_take_no_ioctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule the kernel asks the device, which is no terminal."""

    def ask() -> None:
        with open("/dev/zero", "rb") as device:
            fcntl.ioctl(device.fileno(), termios.TCGETS, bytes(64))

    assert tried(tmp_path, monkeypatch, ask) == "EACCES"


def test_an_abi_handles_the_rights_that_it_and_those_before_it_know() -> None:
    """A kernel refuses a whole ruleset for one right that it does not know (landlock(7), "ABI versions")."""
    later = {2: landlock.Right.REFER, 3: landlock.Right.TRUNCATE, 5: landlock.Right.IOCTL_DEV}
    for version in range(2, 9):
        new = landlock.handled_files(version) & ~landlock.handled_files(version - 1)
        assert new == later.get(version, landlock.Right(0)), version
    assert not landlock.handled_files(1) & (later[2] | later[3] | later[5])
    assert landlock.handled_files(1) & landlock.Right.MAKE_SYM


@pytest.mark.parametrize("link", [False, True])
def test_a_link_in_the_place_of_weights_leads_nowhere(tmp_path: Path, link: bool) -> None:
    """Another job that still runs may put one there, after the supervisor has looked at the name."""
    secret, weights, own = tmp_path / "secret", tmp_path / "other" / "weights", tmp_path / "job"
    secret.write_text("secret")
    weights.parent.mkdir()
    own.mkdir()
    if link:
        weights.symlink_to(secret)
    else:
        weights.write_text("weights")
    chosen = Policy(folder=own, files=frozenset([weights]), libraries=(), temporary=own)

    def read() -> str:
        assert contain(chosen) == {}
        try:
            return weights.read_text()
        except PermissionError:
            return "refused"

    assert in_a_child(read) == ("refused" if link else "weights")
