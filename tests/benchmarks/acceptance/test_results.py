"""Stored results: one text, in the checkout for a GPU and beside the records else."""

from __future__ import annotations

from pathlib import Path

from benchmarks.acceptance.results import load_results, of_run, places, store, text_of

ROOT = Path(__file__).resolve().parents[3]


def test_what_is_stored_is_read_again_and_is_one_text(tmp_path: Path) -> None:
    path = ROOT / "benchmarks" / "results-gpu.json"
    results = load_results(path)
    assert text_of(results) == path.read_text()
    store(results, tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_text() == path.read_text()


def test_a_run_of_the_command_has_neither_notes_nor_tables() -> None:
    records = load_results(ROOT / "benchmarks" / "results-gpu.json")["records"]
    assert of_run(iter(records)) == {"records": records, "notes": [], "tables": []}


def test_only_a_gpu_writes_into_the_checkout(tmp_path: Path) -> None:
    names = ("results-gpu.json", "results-gpu.md", "results-gpu.csv")
    assert places("emulated", tmp_path) == tuple(tmp_path / name for name in names)
    folders = (ROOT / "benchmarks", ROOT / "docs", ROOT / "docs" / "measurements")
    assert places("cuda", tmp_path) == tuple(map(Path.joinpath, folders, names))
