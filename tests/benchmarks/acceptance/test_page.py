"""The page is a function of the records alone, and says what was not run and what failed."""

from __future__ import annotations

import copy
from pathlib import Path

from benchmarks.acceptance.checks import CHECKS, Check
from benchmarks.acceptance.page import page, values
from benchmarks.acceptance.record import Machine, Record, Row, at_least, at_most, cell, exactly, told
from benchmarks.acceptance.results import Results, Table, load_results

ROOT = Path(__file__).resolve().parents[3]
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
        parts=1,
        together=1,
        finished="2026-01-02",
    )


def results(*records: Record, notes: tuple[str, ...] = (), tables: tuple[Table, ...] = ()) -> Results:
    return Results(records=list(records), notes=list(notes), tables=list(tables))


PASSED = record("one", [at_most("ratio", 1.23456, 2.0, "worst: x"), told("a | b", "text")])
FAILED = record("two", [at_least("flips", 3, 4), exactly("hash", "aa", "ab")], "flips: 3, must be at least 4")


def test_a_run_is_told_with_its_machine_values_bounds_and_failures() -> None:
    text = page(results(FAILED, PASSED), TWO)
    assert "| device | Some GPU (2 GPUs) |\n| driver | 580.1 |\n| torch, CUDA | 2.15.0+cu132, 13.2 |" in text
    assert "| commit | c0ffee |\n| date | 2026-01-02 |\n| checks | 1 passed, 1 failed, 0 not run |" in text
    assert "**one**: holds one; 12 s of 60 on the GPU; passed.\n" in text
    assert "FAILED: flips: 3, must be at least 4." in text
    assert values(results(FAILED, PASSED), TWO).splitlines() == [
        "check,measured,value,bound,held",
        "one,ratio (worst: x),1.235,at most 2,yes",
        "one,a | b,text,,",
        "two,flips,3,at least 4,no",
        "two,hash,aa,exactly ab,no",
    ]
    assert "`.venv/bin/python -m benchmarks.acceptance --again --only one`" in text
    assert "dry run" not in text


def test_cells_are_a_table_of_lines_and_columns() -> None:
    rows = [cell("Net", "pgd", "float32", "1; 2; 3"), cell("Net", "fgsm", "tf32", "4; 5; 6"), told("a", 1)]
    stored = results(record("one", rows))
    text = page(stored, TWO)
    assert values(stored, TWO) == "check,measured,value,bound,held\none,a,1,,\n"
    assert "### Net\n" in text
    table = "| attack | float32 | tf32 |\n| --- | --- | --- |\n| pgd | 1; 2; 3 |  |\n| fgsm |  | 4; 5; 6 |\n"
    assert table in text


def test_the_same_records_give_the_same_text_in_any_order() -> None:
    assert page(results(FAILED, PASSED), TWO) == page(copy.deepcopy(results(PASSED, FAILED)), TWO)


def test_what_was_not_run_is_said() -> None:
    text = page(results(PASSED), TWO)
    assert "**two**: holds | two. Not run." in text
    assert "| checks | 1 passed, 0 failed, 1 not run |" in text


def test_a_dry_run_never_claims_a_gpu() -> None:
    dry = copy.deepcopy(PASSED)
    dry["machine"].update(kind="emulated", device="emulated", gpus=0, driver=None, cuda=None)
    dry["kind"] = "cpu"
    text = page(results(dry), TWO)
    assert "**A dry run: no GPU was used.**" in text
    assert "on the CPU; passed" in text
    assert "on the GPU" not in text


def test_parts_side_by_side_are_told() -> None:
    split = copy.deepcopy(PASSED)
    split.update(parts=4, together=16, seconds=80.0)
    text = page(results(split, FAILED), TWO)
    assert "**one**: holds one; 80 s in 4 parts of at most 60 s on the GPU; passed." in text
    assert "| time | 92 s of all processes, up to 16 side by side |" in text


def test_notes_and_other_tables_follow() -> None:
    other = Table(title="Other", text="Of it.", columns=["what", "value"], rows=[["a", "1"], ["b", "2"]])
    text = page(results(PASSED, notes=("It was so.",), tables=(other,)), TWO)
    assert text.index("| time |") < text.index("It was so.\n") < text.index("## First")
    assert text.endswith("## Other\n\nOf it.\n\n| what | value |\n| --- | --- |\n| a | 1 |\n| b | 2 |\n")


def test_the_page_in_docs_is_written_from_the_stored_results() -> None:
    stored = load_results(ROOT / "benchmarks" / "results-gpu.json")
    assert {record["machine"]["kind"] for record in stored["records"]} == {"cuda"}
    docs = ROOT / "docs"
    assert (docs / "results-gpu.md").read_text() == page(stored, CHECKS)
    assert (docs / "measurements" / "results-gpu.csv").read_text() == values(stored, CHECKS)
