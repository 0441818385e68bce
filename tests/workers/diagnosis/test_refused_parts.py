"""`assay doctor` names what of the containment keeps a device from working: planted needs of a device."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.fleet.worker_records import DeviceTest, SelfTestRecord
from assay.workers.containment.limits import Limits
from assay.workers.containment.policy import Policy
from assay.workers.containment.probe import missing_parts
from assay.workers.diagnosis import devices, refused_parts
from assay.workers.settings import WorkerSettings
from tests.support.children import in_a_child

pytestmark = pytest.mark.skipif(bool(missing_parts()), reason=f"this machine lacks {list(missing_parts())}")
LIBC = ctypes.CDLL(None, use_errno=True)


def found(folder: Path, need: Callable[[], Any], **changes: Any) -> Any:
    """The outcome for a device that works where `need` raises no error."""

    def test() -> str | None:
        try:
            need()
        except (OSError, MemoryError) as error:
            return f"CUDA error 304: {error}"
        return None

    chosen = Policy(folder=folder, files=frozenset(), libraries=(), temporary=folder, **changes)
    return in_a_child(lambda: refused_parts.find(test, chosen))


def stream() -> None:
    socket.socket(socket.AF_UNIX).close()


def watches() -> None:
    if LIBC.inotify_init() < 0 and LIBC.inotify_init1(0) < 0:
        raise OSError(ctypes.get_errno(), "inotify")


def test_a_device_that_works_is_not_looked_into(tmp_path: Path) -> None:
    assert found(tmp_path, lambda: None) == {"parts": [], "calls": [], "fault": ""}


def test_a_device_that_fails_without_the_containment_too_is_not_its_fault(tmp_path: Path) -> None:
    need = lambda: os.stat("/no/such/driver")  # noqa: E731
    assert found(tmp_path, need) == {"parts": [], "calls": [], "fault": ""}


@pytest.mark.costly
def test_a_refused_file_is_of_its_part(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "parameters").write_text("x")
    said = found(tmp_path / "job", (tmp_path / "parameters").read_text)
    assert (said["parts"], said["calls"]) == (["files"], [])
    assert "Permission denied" in said["fault"]


@pytest.mark.costly
def test_a_refused_call_is_named(tmp_path: Path) -> None:
    said = found(tmp_path, stream)
    assert (said["parts"], said["calls"]) == (["calls"], ["socket"])
    assert "Operation not permitted" in said["fault"]


@pytest.mark.costly
def test_each_call_that_alone_is_enough_is_named(tmp_path: Path) -> None:
    def both() -> None:
        stream()
        os.eventfd(0)
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0))

    assert found(tmp_path, both)["calls"] == ["setpriority", "socket"]


@pytest.mark.costly
def test_calls_of_which_any_one_would_do_are_named_together(tmp_path: Path) -> None:
    """`inotify_init` and `inotify_init1`: the test fails where both are refused."""
    said = found(tmp_path, watches)["calls"]
    assert {"inotify_init", "inotify_init1"} & set(said)


@pytest.mark.costly
def test_two_parts_of_which_each_is_enough_are_both_named(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "parameters").write_text("x")

    def need() -> None:
        stream()
        (tmp_path / "parameters").read_text()

    assert found(tmp_path / "job", need)["parts"] == ["files", "calls"]


@pytest.mark.costly
def test_a_limit_is_of_its_part(tmp_path: Path) -> None:
    said = found(tmp_path, lambda: bytearray(1 << 30), limits=Limits(memory=1 << 28), gpu=True)
    assert (said["parts"], said["calls"]) == (["limits"], [])


@pytest.mark.costly
def test_a_trial_that_dies_has_failed(tmp_path: Path) -> None:
    """As a driver does that ends its process."""

    def need() -> None:
        try:
            stream()
        except OSError:
            os._exit(6)

    said = found(tmp_path, need)
    assert (said["parts"], said["calls"], said["fault"]) == (
        ["calls"],
        ["socket"],
        "the process ended with 6",
    )


@pytest.mark.costly
def test_the_devices_of_this_machine_are_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    chosen = WorkerSettings(state=tmp_path).containment
    assert refused_parts.ask(chosen, "cpu") == {"parts": [], "calls": [], "fault": ""}


def test_the_doctor_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = DeviceTest(device="cuda:0", name=None, fault="304", total=None, free=None, capability=None)
    record: SelfTestRecord = {
        "torch": "2", "cuda": "13.0", "nccl": None, "deterministic": True, "source_sha256": "s",
        "devices": [device],
    }  # fmt: skip
    asked: list[str] = []

    def ask(chosen: Any, device_class: str) -> refused_parts.Refusal:
        asked.append(device_class)
        return {"parts": ["files", "calls"], "calls": ["socket"], "fault": "304"}

    monkeypatch.setattr(devices, "self_test", lambda settings: (record, {}))
    monkeypatch.setattr(refused_parts, "ask", ask)
    last = list(devices.devices(WorkerSettings(state=tmp_path)))[-1]
    assert (last.name, last.status) == ("containment of cuda", "fail")
    assert last.text == "it works without: files, calls; refused calls: socket"
    assert [one.name for one in devices.devices(WorkerSettings(state=tmp_path, sandbox="off"))][-1] == (
        "device self-test cuda:0"
    )
    assert asked == ["cuda"]
