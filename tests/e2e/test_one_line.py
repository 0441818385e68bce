"""`assay evaluate` as a new user has it: an empty folder with a module of their own, and no service."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay.service.contract.errors import InvalidSpec

ROOT = Path(__file__).resolve().parents[2]

MODELS = '''
import torch
from torch import nn


def build():
    """A linear classifier of 8 x 8 grey pixels: it knows how dark each place of a digit is."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return network
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("ASSAY_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_models.py").write_text(MODELS)
    return tmp_path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "assay.service.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240)


def test_the_first_line_of_all_pages_runs_as_printed(folder: Path) -> None:
    """The line is shorter here only by its attacks; `make tutorials` runs the whole line."""
    pages = [ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "quick-start.md"]
    (line,) = {
        re.findall(r"^assay evaluate .*$", page.read_text(encoding="utf-8"), re.MULTILINE)[0]
        for page in pages
    }
    assert line == "assay evaluate example --report report.html"
    done = run(*line.split()[1:], "--attack", "fgsm epsilon=2/255", "--workers", "1", "--json")
    assert done.returncode == 0, done.stderr
    clean, attacked = (row["metrics"]["top1"] for row in json.loads(done.stdout)["evaluations"])
    assert (clean["n"], clean["value"] > 0.97, 0.5 < attacked["value"] < 0.9) == (355, True, True)
    assert "<html" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_a_module_of_ones_own_is_measured_in_one_line_and_alive(folder: Path) -> None:
    attack = "fgsm epsilon=8/255"
    done = run(
        "evaluate", "my_models:build", "--data", "digits", "--attack", "clean", "--attack", attack,
        "--limit", "60", "--workers", "1", "--report", "report.html", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)
    assert [row["metrics"]["top1"]["n"] for row in first["evaluations"]] == [60, 60]
    assert "cost: at most 120 examples, 240 forward passes, 60 backward passes" in done.stderr
    assert "<html" in (folder / "report.html").read_text()
    # No evaluator, and no service, is left.
    assert not (folder / "assay-state" / "lock").read_text() or _ended(folder / "assay-state" / "lock")

    sys.path.insert(0, str(folder))
    try:
        from my_models import build  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(folder))
    again = assay.evaluate(build(), "digits", attacks=["clean", attack], limit=60, workers=1, progress=False)
    for row, other in zip(first["evaluations"], again.evaluations, strict=True):
        assert other.metrics["top1"].value == row["metrics"]["top1"]["value"]


def _ended(lock: Path) -> bool:
    return not Path(f"/proc/{lock.read_text()}").exists()


@pytest.mark.costly
def test_what_is_wrong_is_said_before_anything_is_measured(folder: Path) -> None:
    done = run("evaluate", "my_models:buidl", "--data", "digits")
    assert done.returncode == 2
    assert "build" in done.stderr
    assert "Traceback" not in done.stderr
    with pytest.raises(InvalidSpec) as caught:
        assay.evaluate("symvti", "digits", progress=False)
    assert caught.value.details[0].nearest == "symvit"
