"""An owner is called dead only when that is certain."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assay.service.store.fleet import lease_owner


def named(**changes: str) -> str:
    """This process's identity with some parts replaced."""
    parts = dict(
        zip(("host", "kernel", "pid", "start", "number"), lease_owner.worker_id(0).split(":"), strict=True)
    )
    return ":".join((parts | changes).values())


def test_identities_differ_by_thread_and_have_five_parts() -> None:
    assert lease_owner.worker_id(0) != lease_owner.worker_id(1)
    assert lease_owner.worker_id(0) == lease_owner.worker_id(0)
    assert lease_owner.worker_id(0).count(":") == 4


def test_the_living_are_not_dead() -> None:
    assert not lease_owner.is_dead(lease_owner.worker_id(0))
    assert not lease_owner.is_dead(lease_owner.worker_id(7)), "another thread of this process"


def test_an_ended_process_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    alive = named(pid=str(child.pid), start=lease_owner._started(child.pid))
    assert not lease_owner.is_dead(alive)
    child.kill()
    deadline = time.monotonic() + 30
    while not lease_owner.is_dead(alive):  # a zombie, before anybody waited for it
        assert time.monotonic() < deadline
    child.communicate()
    assert lease_owner.is_dead(alive)


def test_a_reused_process_number_is_another_process() -> None:
    assert lease_owner.is_dead(named(pid=str(os.getpid()), start="1"))


@pytest.mark.parametrize(
    "elsewhere",
    [
        named(kernel="another-boot.4026531836", pid="999999999"),
        named(host="elsewhere", kernel="another-boot.1", pid="999999999"),
        "",
        "celery@host",
        "host:boot:1:2:0",
        named(pid="one"),
        named() + ":more",
    ],
    ids=["other boot", "other host", "empty", "celery", "short boot", "not a number", "too long"],
)
def test_nothing_is_known_about_other_kernels_and_other_names(elsewhere: str) -> None:
    """Another machine may have this host's name; another container may reuse its process ids."""
    assert not lease_owner.is_dead(elsewhere)


def test_the_host_name_does_not_matter_under_one_kernel() -> None:
    assert lease_owner.is_dead(named(host="renamed", pid="999999999"))


def unreadable(*names: str) -> pytest.MonkeyPatch:
    """Some files that cannot be read, until it is undone."""
    real, patch = Path.read_text, pytest.MonkeyPatch()

    def read_text(path: Path) -> str:
        if str(path) in names:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return real(path)

    patch.setattr(Path, "read_text", read_text)
    return patch


def test_processes_that_do_not_know_their_kernel_are_not_taken_for_one(
    request: pytest.FixtureRequest,
) -> None:
    """Two sandboxes with the same host name, each with a process 7 that started at the same tick."""
    patch = unreadable("/proc/sys/kernel/random/boot_id")
    request.addfinalizer(lease_owner._kernel.cache_clear)
    request.addfinalizer(patch.undo)
    lease_owner._kernel.cache_clear()
    theirs, gone_there = lease_owner.worker_id(0), named(pid="999999999")
    lease_owner._kernel.cache_clear()
    assert lease_owner.worker_id(0) != theirs
    assert not lease_owner.is_dead(theirs)
    assert not lease_owner.is_dead(gone_there)
    assert not lease_owner.is_dead(lease_owner.worker_id(0))


def test_a_hidden_process_of_another_user_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(process: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    patch = unreadable("/proc/4321/stat")
    theirs = named(pid="4321", start="99")
    with monkeypatch.context() as inner:
        inner.setattr(os, "kill", refused)
        assert not lease_owner.is_dead(theirs)
    patch.undo()


@pytest.mark.parametrize("number", ["999999999", "9" * 30], ids=["gone", "too large for a process"])
def test_a_number_that_no_process_has_is_dead(number: str) -> None:
    assert lease_owner.is_dead(named(pid=number))
