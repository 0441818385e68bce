"""The command: without a GPU it ends with 2 and touches nothing; a dry run's page stays out of docs/."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.acceptance.__main__ import main
from benchmarks.acceptance.page import page
from benchmarks.acceptance.results import load_results
from tests.benchmarks.acceptance.planted import check

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs" / "results-gpu.md"


@pytest.mark.costly
def test_without_a_gpu_it_says_so_and_touches_nothing(tmp_path: Path) -> None:
    before = DOCS.read_bytes()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.acceptance", "--records", str(tmp_path / "records")],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("make accept-gpu needs a GPU, and torch ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "records").exists()
    assert DOCS.read_bytes() == before


@pytest.mark.costly
def test_a_dry_run_ends_with_a_table_its_page_and_1_where_one_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = DOCS.read_bytes()
    checks = [check("passes"), check("fails")]
    given = ["--device", "emulated", "--records", str(tmp_path)]
    assert main([*given, "--only", "passes"], checks) == 0
    assert main(given, checks) == 1
    shown = capsys.readouterr().out
    assert "1 of 2 checks on emulated; all take at most 120 s\n" in shown
    assert "passes: passed on " in shown
    assert "1 of 2 passed\n" in shown
    assert main([*given, "--only", "passes", "--again", "--seconds", "100"], checks) == 3
    shown = capsys.readouterr().out
    assert shown.count("not run\n") == 2
    assert "0 of 1 passed, 1 not run\n" in shown
    text = (tmp_path / "results-gpu.md").read_text()
    assert text == page(load_results(tmp_path / "results-gpu.json"), checks)
    assert "| checks | 1 passed, 1 failed, 0 not run |" in text
    assert "**A dry run: no GPU was used.**" in text
    assert DOCS.read_bytes() == before


@pytest.mark.parametrize(
    ("seconds", "only", "message"),
    [(2701, "passes", "2701 s together"), (60, "fails", "no check is named 'fails'")],
)
def test_wrong_plans_and_names_are_refused(
    seconds: int, only: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--device", "emulated", "--only", only], [check("passes", seconds)])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_checks_are_listed_by_worth_and_none_is_run(capsys: pytest.CaptureFixture[str]) -> None:
    checks = [check("passes", worth=2, parts=3), check("fails", 90, worth=1, alone=True)]
    assert main(["--list"], checks) == 0
    assert capsys.readouterr().out == (
        "fails     90 s  alone    it fails\npasses    60 s  3 parts  it passes\n"
    )
    assert main(["--list", "--longer", "4"], checks) == 0
    assert capsys.readouterr().out == (
        "fails    360 s  alone    it fails\npasses   240 s  3 parts  it passes\n"
    )


@pytest.mark.parametrize("given", ["0", "-1", "two", "1.5"])
@pytest.mark.parametrize("option", ["--together", "--seconds", "--longer"])
def test_numbers_are_whole_and_positive(option: str, given: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([f"{option}={given}"], [check("passes")])
    assert caught.value.code == 2
    assert f"argument {option}: {given!r} given; a whole number of at least 1" in capsys.readouterr().err


def test_a_page_is_written_from_stored_results_alone(tmp_path: Path) -> None:
    given = ["--device", "emulated", "--records", str(tmp_path)]
    assert main([*given, "--only", "passes"], [check("passes")]) == 0
    paths = [tmp_path / "results-gpu.md", tmp_path / "results-gpu.csv"]
    before = [path.read_text() for path in paths]
    for path in paths:
        path.unlink()
    assert main([*given, "--page"], [check("passes")]) == 0
    assert [path.read_text() for path in paths] == before
