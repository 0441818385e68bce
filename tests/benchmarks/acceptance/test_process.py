"""Processes of checks end in every way by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.acceptance import runner
from benchmarks.acceptance.checks import Check
from benchmarks.acceptance.record import Record
from tests.benchmarks.acceptance.planted import MACHINE, check


def run(one: Check, folder: Path) -> Record:
    (record,) = runner.run_all([one], MACHINE, folder).records
    return record


@pytest.mark.costly
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
