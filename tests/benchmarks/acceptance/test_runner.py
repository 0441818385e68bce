"""Checks run in processes of their own, end in every way by name, and are repeated until they pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.acceptance import runner
from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.record import Machine, Record, load, path_of
from tests.benchmarks.acceptance.planted import MACHINE, NOTES, QUICK, check
from tests.e2e.running import processes, wait_for

ROOT = Path(__file__).resolve().parents[3]


def run(one: Check, folder: Path) -> Record:
    return runner.measured(one, MACHINE, runner.key_of(MACHINE), folder)


@pytest.mark.parametrize(
    ("name", "seconds", "why"),
    [
        ("fails", 60, "ratio: 3, must be at most 2; no number: nan, must be at most 2"),
        ("measures_nothing", 60, "it measured nothing"),
        ("raises", 60, "ValueError: planted error"),
        ("dies", 60, "its process was ended by SIGSEGV"),
        ("waits", 1, "it was ended when its 3 s were over"),
    ],
)
def test_a_check_that_does_not_pass_says_why(name: str, seconds: int, why: str, tmp_path: Path) -> None:
    record = run(check(name, seconds), tmp_path)
    assert (record["passed"], record["why"]) == (False, why)
    if name == "raises":
        assert "planted error" in (tmp_path / "raises.log").read_text()


def test_a_check_that_needs_a_driver_runs_on_the_cpu_in_a_dry_run_and_says_so(tmp_path: Path) -> None:
    record = run(check("passes", driver="it has no other"), tmp_path)
    assert record["passed"]
    assert (record["kind"], record["rows"][0]["value"]) == ("cpu", "cpu")
    assert record["machine"]["kind"] == "emulated"


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Checks that ran, in place of running them."""
    names: list[str] = []

    def measured(one: Check, machine: Machine, key: Any, folder: Path) -> Record:
        names.append(one.name)
        return Record(
            check=one.name,
            key=key,
            machine=machine,
            kind="emulated",
            passed=one.name != "fails",
            why=None,
            rows=[],
            seconds=1.0,
            planned=one.seconds,
            finished="2026-01-01",
        )

    monkeypatch.setattr(runner, "measured", measured)
    return names


def test_what_has_passed_for_the_same_key_is_not_repeated(counted: list[str], tmp_path: Path) -> None:
    checks = [check("passes"), check("fails")]
    first = runner.run_all(checks, MACHINE, tmp_path)
    assert counted == ["passes", "fails"]
    told: list[str] = []
    assert runner.run_all(checks, MACHINE, tmp_path, tell=told.append) == first
    assert counted == ["passes", "fails", "fails"]
    assert told[0] == "passes: passed on 2026-01-01, not repeated"
    runner.run_all(checks, MACHINE, tmp_path, again=True)
    assert counted[3:] == ["passes", "fails"]


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["key"].update(code="other"),
        lambda record: record["key"].update(torch="other"),
        lambda record: record["key"].update(device="other"),
        lambda record: record.pop("rows"),
    ],
)
def test_a_record_of_another_key_or_form_is_measured_again(
    change: Callable[[Any], object], counted: list[str], tmp_path: Path
) -> None:
    runner.run_all([check("passes")], MACHINE, tmp_path)
    path = path_of("passes", tmp_path)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    runner.run_all([check("passes")], MACHINE, tmp_path)
    assert counted == ["passes", "passes"]
    path.write_text("{")
    assert load("passes", tmp_path) is None


def test_a_run_that_was_killed_goes_on_and_leaves_no_process(tmp_path: Path) -> None:
    notes, folder = tmp_path / "notes", tmp_path / "records"
    environment = os.environ | {NOTES: str(notes)}
    command = [sys.executable, "-m", "tests.benchmarks.acceptance.planted", str(folder)]
    killed = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        begun = wait_for(lambda: notes.exists() and "waits" in notes.read_text(), 120)
        assert begun
    finally:
        killed.kill()
        killed.wait()
    child = int(notes.read_text().split()[-1])
    wait_for(lambda: child not in processes(), 30)
    record = load("passes", folder)
    assert record is not None
    assert record["passed"]
    assert load("waits", folder) is None
    subprocess.run(command, cwd=ROOT, env=environment | {QUICK: "1"}, check=True)
    assert load("passes", folder) == record
    assert [line.split()[0] for line in notes.read_text().splitlines()] == ["passes", "waits", "waits"]
    assert load("waits", folder) is not None
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_the_key_is_of_source_torch_and_device() -> None:
    key = runner.key_of(MACHINE)
    assert key == runner.key_of(MACHINE)
    assert (key["torch"], key["device"]) == ("0", "emulated")
    assert len(key["code"]) == 64
