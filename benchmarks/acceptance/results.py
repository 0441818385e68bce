"""What is stored of a run, and where: one file, from which the page is written. Never imports torch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from benchmarks.acceptance.process import ROOT
from benchmarks.acceptance.record import Kind, Record, write_whole

NAME, PAGE, VALUES = "results-gpu.json", "results-gpu.md", "results-gpu.csv"


class Table(TypedDict):
    """Other numbers of the machine; `rows` are cells of Markdown."""

    title: str
    text: str
    columns: list[str]
    rows: list[list[str]]


class Results(TypedDict):
    """The records of a run; notes and tables are added by hand where a run was not that of the command."""

    records: list[Record]
    notes: list[str]
    tables: list[Table]


def places(kind: Kind, folder: Path) -> tuple[Path, Path, Path]:
    """The files of results, page and values: in the checkout on a GPU, else beside the records."""
    if kind != "cuda":
        return folder / NAME, folder / PAGE, folder / VALUES
    return ROOT / "benchmarks" / NAME, ROOT / "docs" / PAGE, ROOT / "docs" / "measurements" / VALUES


def of_run(records: Iterable[Record]) -> Results:
    """The results of a run of the command."""
    return Results(records=list(records), notes=[], tables=[])


def load_results(path: Path) -> Results:
    """Stored results."""
    found: Results = json.loads(path.read_text())
    return found


def text_of(results: Results) -> str:
    """Results as they are stored."""
    return json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def store(results: Results, path: Path) -> None:
    """Writes results; a reader finds the whole of them or those before."""
    write_whole(path, text_of(results))
