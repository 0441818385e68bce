"""The page is a function of the records alone, and says what was not run and what failed."""

from __future__ import annotations

import copy
from pathlib import Path

from benchmarks.acceptance.checks import CHECKS, Check
from benchmarks.acceptance.page import page
from benchmarks.acceptance.record import Machine, Record, Row, at_least, at_most, exactly, told

DOCS = Path(__file__).resolve().parents[3] / "docs"
MACHINE: Machine = {
    "kind": "cuda",
    "device": "Some GPU",
    "gpus": 2,
    "driver": "580.1",
    "torch": "2.15.0+cu132",
    "cuda": "13.2",
    "commit": "c0ffee",
}
TWO = (Check("one", "First", "holds one", "a:b", 60), Check("two", "Second", "holds | two", "a:b", 90))


def record(name: str, rows: list[Row], why: str | None = None) -> Record:
    return Record(
        check=name,
        key={"code": "c", "torch": "t", "device": "d"},
        machine=MACHINE,
        kind="cuda",
        passed=why is None,
        why=why,
        rows=rows,
        seconds=12.34,
        planned=60,
        finished="2026-01-02",
    )


PASSED = record("one", [at_most("ratio", 1.23456, 2.0), told("a | b", "text")])
FAILED = record("two", [at_least("flips", 3, 4), exactly("hash", "aa", "ab")], "flips: 3, must be at least 4")


def test_a_run_is_told_with_its_machine_values_bounds_and_failures() -> None:
    text = page([FAILED, PASSED], TWO)
    assert "| device | Some GPU (2 GPUs) |\n| driver | 580.1 |\n| torch, CUDA | 2.15.0+cu132, 13.2 |" in text
    assert "| commit | c0ffee |\n| date | 2026-01-02 |\n| checks | 1 passed, 1 failed, 0 not run |" in text
    assert "**one**: holds one; 12 s of 60 on the GPU; passed.\n" in text
    assert "| ratio | 1.235 | at most 2 | yes |\n| a \\| b | text |  |  |\n" in text
    assert "FAILED: flips: 3, must be at least 4." in text
    assert "| flips | 3 | at least 4 | **no** |\n| hash | aa | exactly ab | **no** |\n" in text
    assert "`.venv/bin/python -m benchmarks.acceptance --again --only one`" in text
    assert "dry run" not in text


def test_the_same_records_give_the_same_text_in_any_order() -> None:
    assert page([FAILED, PASSED], TWO) == page(copy.deepcopy([PASSED, FAILED]), TWO)


def test_what_was_not_run_is_said() -> None:
    text = page([PASSED], TWO)
    assert "**two**: holds | two. Not run." in text
    assert "| checks | 1 passed, 0 failed, 1 not run |" in text


def test_a_dry_run_never_claims_a_gpu() -> None:
    dry = copy.deepcopy(PASSED)
    dry["machine"].update(kind="emulated", device="emulated", gpus=0, driver=None, cuda=None)
    dry["kind"] = "cpu"
    text = page([dry], TWO)
    assert "**A dry run: no GPU was used.**" in text
    assert "on the CPU; passed" in text
    assert "on the GPU" not in text


def test_without_a_record_it_says_that_nothing_was_run_and_how_to_run_it() -> None:
    text = page([], TWO)
    assert "**No GPU run has been made yet**" in text
    assert "make accept-gpu" in text
    assert "| Second | `two` | holds | two | 90 |" in text


def test_the_page_in_docs_is_of_a_run_or_of_none() -> None:
    text = (DOCS / "results-gpu.md").read_text()
    assert "dry run: no GPU" not in text
    if "No GPU run has been made yet" in text:
        assert text == page([], CHECKS)
