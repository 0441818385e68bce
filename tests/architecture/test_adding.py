"""The components of docs/adding.md, added to a copy of the repository: nothing else has to be edited."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^`([a-z_/]+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDED = {("attack", "mifgsm"), ("attention", "cosine"), ("corruption", "posterize"), ("data", "stripes")}

# Square leaves 30 % right, MI-FGSM with gradients 60 %.
CHECK = """
from assay.service.catalog.catalog import load
from assay.service.contract.results import EvaluationResult, Metric
from assay.service.metrics.sanity_checks import cross_checks

def row(name, top1):
    metric = Metric(value=top1, n=1000, ci_low=0, ci_high=1, ci_method="wilson", higher_is_better=True)
    made = {"data": {}, "protocol": "pixel", "backend": "native", "metrics": {"top1": metric}, "seconds": 1.0}
    passes = {"forward_passes": 1, "backward_passes": 1}
    return EvaluationResult(name=name, params={"epsilon": "8/255"}, **made, **passes)

for warning in cross_checks([row("square", 0.3), row("mifgsm", 0.6)], load().threat_of):
    print(warning.code)
"""

# The names in the spec, and how many outcomes an example has.
CORRUPT = """
import torch
from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.catalog import build
from assay.workers.jobs.cost import preparation_seconds

item = {"name": "corruptions", "params": {"corruptions": ["posterize", "fog"], "severities": [3]}}
spec = validate(load(), {
    "kind": "evaluate", "model": {"name": "vit"}, "data": {"name": "digits"}, "evaluations": [item]
}).spec
(item,) = spec["evaluations"]
assert preparation_seconds(item, 224, "cpu") > 0
made = build("evaluation", item["name"], item["params"])(seed=0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(256, 10))
images = torch.rand(4, 1, 16, 16)
outcomes = made(model, lambda rows: images[list(rows)], torch.arange(4), list("abcd"), batch_size=2)
print(*item["params"]["corruptions"], *{len(flags) for flags in outcomes.corrupted})
"""


def files_of_the_page() -> dict[str, str]:
    return dict(FILE.findall((ROOT / "docs" / "adding.md").read_text()))


def entries(root: Path) -> dict[tuple[str, str], dict[str, object]]:
    listed = json.loads((root / "service" / "catalog" / "catalog.json").read_text())
    return {(entry["kind"], entry["name"]): entry for entry in listed}


def run(copy: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", *arguments]
    process = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The packages and tests, with the files of the page."""
    root = tmp_path / "assay"
    for folder in ("service", "workers", "models", "attacks", "tests"):
        shutil.copytree(ROOT / folder, root / folder)
    shutil.copytree(ROOT / "src", root / "src", symlinks=True)
    shutil.copy(ROOT / "pyproject.toml", root)
    for name, source in files_of_the_page().items():
        assert not (root / name).exists(), "the page's components must not be in the tree"
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(source)
    return root


def test_the_components_of_the_page_enter_the_catalog_and_pass_their_tests_and_the_laws(copy: Path) -> None:
    before = entries(copy)
    run(copy, "assay.workers.catalog")
    after = entries(copy)
    assert set(after) - set(before) == ADDED
    assert {key: after[key] for key in before} == before
    own = [name for name in files_of_the_page() if name.startswith("tests/")]
    names = " or ".join(name for _, name in ADDED)
    output = run(copy, "pytest", "-v", "-p", "no:cacheprovider", *own, "tests/laws", "-k", names)
    for _, name in ADDED:
        assert re.search(rf"test_{name}\.py::\S+ PASSED", output)
        assert re.search(rf"tests/laws/\S*\[\S*{name}\S*\] PASSED", output)


def test_a_stronger_black_box_beside_the_attack_of_the_page_warns_of_masked_gradients(copy: Path) -> None:
    run(copy, "assay.workers.catalog")
    (copy / "found.py").write_text(CHECK)
    assert run(copy, "found").split() == ["black_box_stronger_than_white_box"]


def test_a_job_may_name_the_corruption_of_the_page_and_measures_it(copy: Path) -> None:
    run(copy, "assay.workers.catalog")
    (copy / "found.py").write_text(CORRUPT)
    assert run(copy, "found").split() == ["posterize", "fog", "2"]


def test_the_files_of_the_page_are_formatted_and_linted(copy: Path) -> None:
    files = list(files_of_the_page())
    run(copy, "ruff", "check", *files)
    run(copy, "ruff", "format", "--check", *files)
