"""The components of docs/adding.md, added to a copy of the repository: nothing else has to be edited.

A package with one component of every kind, and a job with each, is in `tests/e2e/test_packages.py`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, Metric
from assay.service.metrics.compare.sanity_checks import cross_checks
from assay.workers.discovery.walk import describe
from tests.support.packages import files_of_the_page

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("service", "workers", "models", "attacks", "tests")
ADDED = {
    ("attack", "mifgsm"),
    ("attention", "cosine"),
    ("corruption", "posterize"),
    ("data", "stripes"),
    ("evaluation", "mirrored"),
    ("model", "mlp"),
    ("model", "mlp_wide"),
    ("recipe", "super_convergence"),
}
# The kinds that have laws of single components; evaluations have those of their outcome tables.
LAWS = ("attack", "attention", "corruption", "data", "model")


def in_the_tree() -> dict[str, str]:
    """The files of the page that belong into the repository."""
    return {name: text for name, text in files_of_the_page().items() if name.split("/")[0] in FOLDERS}


def write(root: Path, files: dict[str, str]) -> None:
    for name, source in files.items():
        assert not (root / name).exists(), "the page's components must not be in the tree"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)


def entries(root: Path) -> dict[tuple[str, str], dict[str, Any]]:
    listed = json.loads((root / "service" / "catalog" / "catalog.json").read_text())
    return {(entry["kind"], entry["name"]): entry for entry in listed}


def run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(folder / "src")}
    command = [sys.executable, "-m", *arguments]
    process = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and tests, with the files of the page."""
    root = tmp_path / "assay"
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copytree(ROOT / "src", root / "src", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    write(root, in_the_tree())
    return root


@pytest.mark.slow
def test_the_components_of_the_page_enter_the_catalog_and_pass_their_tests_and_the_laws(copy: Path) -> None:
    before = entries(copy)
    run(copy, "assay.workers.catalog")
    after = entries(copy)
    assert set(after) - set(before) == ADDED
    assert {key: after[key] for key in before} == before
    own = [name for name in in_the_tree() if name.startswith("tests/")]
    laws = [f"tests/laws/test_{kind}_laws.py" for kind in LAWS]
    # The hashes of another process are those of every set of Assay.
    chosen = f"({' or '.join(name for _, name in ADDED)}) and not another_process"
    output = run(copy, "pytest", "-xvp", "no:xdist", "-p", "no:cacheprovider", *own, *laws, "-k", chosen)
    for kind, name in ADDED:
        assert re.search(rf"test_{name.removesuffix('_wide')}\.py::\S+ PASSED", output)
        if kind in LAWS:
            assert re.search(rf"tests/laws/test_{kind}_laws\S*\[\S*{name}\S*\] PASSED", output)


def row(name: str, top1: float) -> EvaluationResult:
    metric = Metric(value=top1, n=1000, ci_low=0, ci_high=1, ci_method="wilson", higher_is_better=True)
    return EvaluationResult(
        name=name,
        params={"epsilon": "8/255"},
        data={},
        protocol="pixel",
        backend="native",
        metrics={"top1": metric},
        seconds=1.0,
        forward_passes=1,
        backward_passes=1,
    )


def module_of_the_page(folder: Path, name: str) -> ModuleType:
    path = folder / Path(name).name
    path.write_text(files_of_the_page()[name])
    spec = importlib.util.spec_from_file_location(f"page_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


def test_a_stronger_black_box_beside_the_attack_of_the_page_warns_of_masked_gradients(tmp_path: Path) -> None:
    module = module_of_the_page(tmp_path, "attacks/adversarial/mifgsm.py")
    threats = {
        "mifgsm": describe("attack", module, "mifgsm", ["mifgsm"]).threat,
        "square": load().threat_of("square"),
    }
    # Square leaves 30 % right, MI-FGSM with gradients 60 %.
    warnings = cross_checks([row("square", 0.3), row("mifgsm", 0.6)], threats.get)
    assert [warning.code for warning in warnings] == ["black_box_stronger_than_white_box"]
    assert not cross_checks([row("square", 0.6), row("mifgsm", 0.3)], threats.get)


def test_the_files_of_the_page_are_formatted_and_linted(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    files = {name: text for name, text in files_of_the_page().items() if name.endswith(".py")}
    write(tmp_path, files)
    run(tmp_path, "ruff", "check", *files)
    run(tmp_path, "ruff", "format", "--check", *files)
