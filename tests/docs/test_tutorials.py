"""The quick start and every tutorial run as they stand, in an empty folder, against the real command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.docs.tutorials import FOLDER, SECONDS, Block, blocks, pages, run, script

# What the output of each must have: its commands may end well without having done anything.
SHOWN = {
    "gate": ["pass     clean top1 >= 70 %", "exit code 1", "names 2 rows", "exit code 2"],
    "image-folder": ["image_folder  folder figures  3 classes", "figures, attacked", "report.html"],
    "own-module": ["report: report.html", "accuracy under PGD at 2/255: 0.", "exit code 2"],
    "quick-start": ["report: report.html", "clean"],
    "text": ["deepwordbug: accuracy_under_attack", '"original"'],
    "two-models": ['"nearest":"vit"', '"state":"succeeded"', "rpc less softmax"],
}


def test_every_tutorial_is_run_and_is_in_the_list() -> None:
    assert {page.stem for page in pages()} == SHOWN.keys()
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert all(f"({page.name})" in index for page in pages() if page.parent == FOLDER)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_files_that_a_tutorial_writes_are_what_they_claim(page: Path) -> None:
    files = {part.title: part for part in blocks(page) if part.title and not part.background}
    assert files
    for name, part in files.items():
        if name.endswith(".json"):
            json.loads(part.text)
        if name.endswith(".py"):
            compile(part.text, name, "exec")


def test_a_block_is_typed_written_left_running_or_shown() -> None:
    parts = [
        Block("sh", "Terminal 1", "assay serve\n"),
        Block("json", "job.json", '{"a": "http://127.0.0.1:8000"}\n'),
        Block("sh", "", "assay run job.json\n"),
        Block("text", "", "done\n"),
    ]
    lines = script(parts, "http://127.0.0.1:5").splitlines()
    assert lines[0] == "set -euo pipefail"
    assert "{ assay serve" in lines
    assert '{"a": "http://127.0.0.1:5"}' in lines
    assert "assay run job.json" in lines
    assert "done" not in lines


@pytest.mark.tutorial
@pytest.mark.trains
@pytest.mark.timeout(SECONDS + 60)
@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_tutorial_runs(page: Path, tmp_path: Path) -> None:
    done = run(page, tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    for text in SHOWN[page.stem]:
        assert text in done.stdout, done.stdout[-3000:]
    if page.stem == "own-module":
        plain, measured = re.findall(r"^accuracy on val: (0\.\d{4})", done.stdout, re.MULTILINE)
        assert plain == measured, "the accuracy of plain PyTorch"
