"""What `assay doctor` says of the box: its driver, its memory and disks, its data and its containment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from assay.workers.diagnosis import machine
from assay.workers.settings import WorkerSettings


def smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of device files with one GPU, and an `nvidia-smi` of this script."""
    (folder / "nvidia0").touch()
    tool = folder / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        ("echo '580.65.06, NVIDIA H200'", "ok", "driver 580.65.06: NVIDIA H200"),
        ("echo '550.1, NVIDIA H200'", "warn", "driver 550.1: NVIDIA H200"),
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "fail", "mismatch"),
    ],
)
def test_the_driver_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, status: str, said: str
) -> None:
    found = machine.driver(smi(tmp_path, script, monkeypatch))
    assert (found.status, said in found.text) == (status, True)


def test_device_files_without_the_drivers_tool_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    found = machine.driver(tmp_path)
    assert (found.status, "nvidia-smi is not" in found.text) == ("fail", True)


@pytest.mark.costly
def test_data_sets_have_their_hashes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "a.png").write_bytes(b"no image")
    found = {one.name: one for one in machine.data_sets(WorkerSettings(state=tmp_path, data_root=tmp_path))}
    assert found["data"].status == "ok"
    assert "sha256 " in found["data digits"].text
    assert (found["folder pictures"].status, found["folder pictures"].text) == ("ok", "no data set: empty")
    assert found["data image_folder in photos"].status in ("ok", "warn")


@pytest.mark.parametrize(
    ("mode", "part", "status"),
    [
        ("off", "files", "warn"),
        ("auto", "files", "warn"),
        ("required", "files", "fail"),
        ("auto", "user", "fail"),
    ],
)
def test_missing_containment_is_a_warning_or_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Any, part: str, status: str
) -> None:
    for name in ("missing_parts", "demanded_parts"):
        monkeypatch.setattr(machine, name, lambda _: {part: "why"})
    assert machine.sandbox(WorkerSettings(state=tmp_path, sandbox=mode)).status == status


def test_what_compilers_may_do_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("missing_parts", "demanded_parts"):
        monkeypatch.setattr(machine, name, lambda _: {})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "programs" not in machine.sandbox(WorkerSettings(state=tmp_path)).text
    found = machine.sandbox(WorkerSettings(state=tmp_path, sandbox_compile="on"))
    assert found.text.endswith(
        "; jobs with execution.compile may start programs (ASSAY_SANDBOX_COMPILE=on), but there is no g++"
    )


def test_little_memory_and_little_room_are_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "MIN_FREE_MEMORY", 2**60)
    monkeypatch.setattr(machine, "MIN_FREE_DISK", 2**60)
    settings = WorkerSettings(state=tmp_path)
    assert machine.memory(settings).status == "warn"
    assert [one.status for one in machine.disks(settings)] == ["warn", "warn"]
