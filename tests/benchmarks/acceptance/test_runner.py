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
from benchmarks.acceptance.parts import Part
from benchmarks.acceptance.record import Key, Machine, Record, load, path_of, told
from tests.benchmarks.acceptance.planted import MACHINE, NOTES, QUICK, check
from tests.e2e.running import processes, wait_for

ROOT = Path(__file__).resolve().parents[3]


class Counted:
    """A process that has ended at once; the check `fails` fails."""

    def __init__(self, part: Part, machine: Machine, key: Key, folder: Path, together: int) -> None:
        self.part = part
        BEGUN.append((part.name, together))
        self._record = Record(
            check=part.check.name,
            key=key,
            machine=machine,
            kind="emulated",
            passed=part.check.name != "fails",
            why=None if part.check.name != "fails" else "planted",
            rows=[told("cases", 1)],
            seconds=1.0,
            planned=part.seconds(),
            parts=part.count,
            together=together,
            finished="2026-01-01",
        )

    def record(self) -> Record:
        return self._record

    def stop(self) -> None:
        pass


BEGUN: list[tuple[str, int]] = []


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Parts that ran, with the number side by side, in place of running them."""
    BEGUN.clear()
    monkeypatch.setattr(runner, "Process", Counted)
    return BEGUN


def names(counted: list[tuple[str, int]]) -> list[str]:
    return [name for name, _ in counted]


def test_what_has_passed_for_the_same_key_is_not_repeated(
    counted: list[tuple[str, int]], tmp_path: Path
) -> None:
    checks = [check("passes"), check("fails")]
    first = runner.run_all(checks, MACHINE, tmp_path)
    assert names(counted) == ["passes", "fails"]
    lines: list[str] = []
    assert runner.run_all(checks, MACHINE, tmp_path, tell=lines.append) == first
    assert names(counted) == ["passes", "fails", "fails"]
    assert lines[0] == "passes: passed on 2026-01-01, not repeated"
    runner.run_all(checks, MACHINE, tmp_path, again=True)
    assert names(counted)[3:] == ["passes", "fails"]


def test_side_by_side_the_longest_parts_come_first_and_what_measures_time_runs_alone(
    counted: list[tuple[str, int]], tmp_path: Path
) -> None:
    checks = [check("passes", alone=True, parts=3), check("waits", 30), check("fails", 90, parts=2)]
    run = runner.run_all(checks, MACHINE, tmp_path, together=8)
    assert counted == [("fails-1of2", 8), ("fails-2of2", 8), ("waits", 8), ("passes", 1)]
    assert [record["check"] for record in run.records] == ["passes", "waits", "fails"]
    assert run.records[2]["parts"] == 2
    assert run.records[2]["rows"][0]["value"] == 2
    assert run.records[2]["why"] == "planted"
    runner.run_all(checks, MACHINE, tmp_path, together=8)
    assert names(counted)[4:] == ["fails-1of2", "fails-2of2"]


def test_parts_that_have_passed_are_not_repeated(counted: list[tuple[str, int]], tmp_path: Path) -> None:
    checks = [check("passes", parts=3)]
    first = runner.run_all(checks, MACHINE, tmp_path, together=8)
    path_of("passes", tmp_path).unlink()
    path_of("passes-2of3", tmp_path).unlink()
    assert runner.run_all(checks, MACHINE, tmp_path, together=8) == first
    assert names(counted)[3:] == ["passes-2of3"]


def test_where_time_is_short_the_worth_decides_and_the_rest_is_not_run(
    counted: list[tuple[str, int]], tmp_path: Path
) -> None:
    checks = [check("waits", 60, worth=3), check("fails", 60, worth=1), check("passes", 80, worth=2)]
    lines: list[str] = []
    run = runner.run_all(checks, MACHINE, tmp_path, seconds=200, tell=lines.append)
    assert names(counted) == ["fails", "waits"]  # a dry run has three times the time
    assert [one.name for one in run.not_run] == ["passes"]
    assert any(line.startswith("passes: not begun: it may take 240 s, ") for line in lines)
    assert runner.run_all(checks, MACHINE, tmp_path, seconds=10).not_run == [checks[1], checks[2]]


@pytest.mark.costly
def test_two_parts_run_at_the_same_time_each_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTES, str(tmp_path / "notes"))
    run = runner.run_all([check("meets", parts=2), check("shares", parts=2)], MACHINE, tmp_path, together=4)
    assert [record["why"] for record in run.records] == [None, None]
    shared = {row["what"]: row for row in run.records[1]["rows"]}
    assert shared["cases"]["value"] == 5
    assert (shared["case"]["value"], shared["case"]["case"]) == (4.0, "worst: 4")
    folders = [load(f"shares-{number}of2", tmp_path)["rows"][2]["value"] for number in (1, 2)]  # type: ignore[index]
    assert len(set(folders)) == 2
    assert not any(Path(folder).exists() for folder in folders)


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
    change: Callable[[Any], object], counted: list[tuple[str, int]], tmp_path: Path
) -> None:
    runner.run_all([check("passes")], MACHINE, tmp_path)
    path = path_of("passes", tmp_path)
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    runner.run_all([check("passes")], MACHINE, tmp_path)
    assert names(counted) == ["passes", "passes"]
    path.write_text("{")
    assert load("passes", tmp_path) is None


@pytest.mark.costly
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
