"""Every check of `make accept-gpu` in tiny sizes, on the emulated device or, if it says why, on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.acceptance.checks import CHECKS, Check
from benchmarks.acceptance.runner import machine_of, run_all

TRAINS = ("Bits", "Speed", "Training")


@pytest.mark.slow
@pytest.mark.parametrize(
    "one",
    [
        pytest.param(check, id=check.name, marks=[pytest.mark.trains] * (check.area in TRAINS))
        for check in CHECKS
    ],
)
def test_a_check(one: Check, tmp_path: Path) -> None:
    (record,) = run_all([one], machine_of("emulated"), tmp_path).records
    log = (tmp_path / f"{one.name}.log").read_text()
    assert record["passed"], (record["why"], log[-3000:])
    assert record["kind"] == ("cpu" if one.driver else "emulated")
    assert any(row["relation"] for row in record["rows"]) or one.area == "Speed"
