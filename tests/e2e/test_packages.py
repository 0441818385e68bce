"""One component of every kind from an installed package through the service, beside a broken package."""

from __future__ import annotations

import base64
import csv
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from assay.service.client import AssayClient
from assay.service.contract.errors import InvalidSpec
from assay.service.contract.results import Breakdown, EvaluationResult, PartBreakdown
from tests.e2e.jobs import SHAPE, attacking, finished
from tests.e2e.running import ROOT, RunningService
from tests.support.packages import install, install_every_kind

PACKAGE = {"name": "mypkg", "version": "1.2"}
COMPONENTS = {
    ("attack", "downhill"),
    ("attack", "mifgsm"),
    ("attention", "cosine"),
    ("corruption", "posterize"),
    ("data", "dots"),
    ("data", "stripes"),
    ("evaluation", "confidence"),
    ("evaluation", "count_error"),
    ("evaluation", "mirrored"),
    ("model", "mlp"),
    ("model", "mlp_wide"),
    ("recipe", "steady"),
    ("suite", "mixed"),
    ("task", "counting"),
    ("words", "backwards"),
}
DATA = {"name": "stripes"}
CPU = {"device": "cpu", "batch_size": 50}
COSINE = {"name": "cosine", "params": {"scale": 8.0}}
VIT = {"name": "vit", "params": {**SHAPE, "image_size": 16, "patch_size": 4, "attention": COSINE}}
TINY_LM = {"width": 32, "depth": 1, "heads": 2, "hidden": 64, "length": 32, "dropout": 0.0}
# Stripes have full contrast: a small perturbation breaks none.
EPSILON = {"epsilon": "127/255"}
EVALUATIONS = [
    {"name": "mirrored"},
    {"name": "confidence"},
    {"name": "downhill", "params": EPSILON},
    {"name": "square", "params": {**EPSILON, "queries": 200}},
    {"name": "corruptions", "params": {"corruptions": ["posterize", "brightness"], "severities": [5]}},
    {"suite": "mixed"},
]
# In the order of the job; the last three are the suite's.
MEASURED = ["mirrored", "confidence", "downhill", "square", "corruptions", "clean", "mirrored", "mifgsm"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    install_every_kind(folder)
    return folder


@pytest.fixture
def running() -> Iterator[list[RunningService]]:
    started: list[RunningService] = []
    yield started
    for service in started:
        service.close()


def train(client: AssayClient, model: Mapping[str, Any], epochs: int) -> str:
    recipe = {"name": "steady", "params": {"epochs": epochs}}
    return client.submit(
        {"kind": "train", "model": model, "data": DATA, "recipe": recipe, "execution": CPU}
    ).id


def evaluate(client: AssayClient, name: str, trained: str) -> str:
    model = {"name": name, "weights": {"job": trained}}
    body = {"kind": "evaluate", "model": model, "data": DATA, "limit": 50, "execution": CPU}
    return client.submit({**body, "evaluations": EVALUATIONS}).id


def swap_words(client: AssayClient) -> str:
    swap = {"name": "word_swap", "params": {"rate": 0.5, "words": "backwards", "window": "blocks"}}
    body = {"kind": "evaluate", "model": {"name": "lm", "params": TINY_LM}, "data": {"name": "pydoc"}}
    return client.submit({**body, "limit": 2, "execution": CPU, "evaluations": [swap]}).id


def check_metrics(evaluation: EvaluationResult) -> None:
    """Every metric has a unit, and a count and an interval where it has a value."""
    assert any(metric.value is not None for metric in evaluation.metrics.values())
    for name, metric in evaluation.metrics.items():
        assert metric.unit is not None, name
        if metric.value is not None:
            assert metric.n > 0, name
            if metric.ci_method in ("no_spread", "too_few"):
                assert (metric.ci_low, metric.ci_high) == (None, None), name
            else:
                assert metric.ci_low is not None, name
                assert metric.ci_high is not None, name
                assert metric.ci_low <= metric.value <= metric.ci_high, name


def check_table(running: RunningService, job: str, confidence: EvaluationResult) -> None:
    """The package's table: metrics and parts in the results, its plot on the page and in the report."""
    whole = confidence.metrics["confidence"]
    assert whole.unit == "proportion"
    parts = {part.label: part for part in confidence.breakdown if isinstance(part, PartBreakdown)}
    assert parts["right"].keys == {"right": True}
    assert sum(part.metrics["confidence"].n for part in parts.values()) == whole.n
    assert {part.metrics["confidence"].unit for part in parts.values()} == {"proportion"}

    client, name = running.client, "plot-001-confidence.svg"
    [plot] = [file for file in client.artifacts(job) if file.name == name]
    drawn = httpx.get(f"{client.url}{plot.href}").text
    assert "Confidence of answers" in drawn
    page = httpx.get(f"{client.url}/jobs/{job}").text
    assert f'src="/jobs/{job}/pictures/{name}"' in page
    assert re.search(r'<th scope="row" data-label="Part">right</th>', page)
    report = client.report([job])
    assert f"base64,{base64.b64encode(drawn.encode()).decode()}" in report
    assert "confidence (evaluation 2)" in report
    assert "right" in {row["part"] for row in csv.DictReader(client.report([job], format="csv").splitlines())}


@pytest.mark.costly
def test_a_task_of_a_package_is_trained_and_measured(
    site: Path, tmp_path: Path, running: list[RunningService]
) -> None:
    running.append(RunningService(tmp_path / "state", PYTHONPATH=str(site)))
    client = running[0].start().client
    mlp = {"name": "mlp", "params": {"image_size": 8}}
    training = {"kind": "train", "data": {"name": "dots"}, "model": mlp, "execution": CPU}
    recipe = {"name": "steady", "params": {"epochs": 60, "learning_rate": 1e-2}}
    with pytest.raises(InvalidSpec, match="is for classification, the data 'dots' is for counting"):
        client.submit({**training, "recipe": {"name": "small_vit"}})
    trained = finished(client, client.submit({**training, "recipe": recipe}).id).id
    (counted,) = client.results(trained).evaluations
    error = counted.metrics["rmse"]
    assert (counted.name, error.n, counted.protocol) == ("count_error", 100, "pixel")
    assert error.value is not None
    assert error.value < 1.5  # the mean alone has 2.87
    body = {"kind": "evaluate", "model": {"name": "mlp", "weights": {"job": trained}}, "execution": CPU}
    again = client.submit({**body, "data": {"name": "dots"}, "evaluations": [{"name": "count_error"}]}).id
    (measured,) = client.results(finished(client, again).id).evaluations
    assert measured.metrics == counted.metrics


@pytest.mark.slow
def test_one_component_of_every_kind_runs_to_its_results_and_a_broken_package_is_left_out(
    site: Path, tmp_path: Path, running: list[RunningService]
) -> None:
    install(site, "broken", "0.1", {"broken": "broken"}, attack="__all__ = ['oops']\nraise SystemExit(3)\n")
    running.append(RunningService(tmp_path / "state", PYTHONPATH=str(site), ASSAY_WORKERS="2"))
    client = running[0].start().client
    listed = client.catalog()
    assert {entry["kind"] for entry in listed} == {kind for kind, _ in COMPONENTS}
    assert {(e["kind"], e["name"]) for e in listed if e.get("package") == PACKAGE} == COMPONENTS
    with pytest.raises(
        InvalidSpec, match=r"broken 0\.1: broken: broken\.attack cannot be imported: SystemExit"
    ):
        client.submit(attacking(None, [{"name": "oops"}]))
    assert "the components of broken 0.1 are left out" in (tmp_path / "state.log").read_text()

    models = {"mlp": {"name": "mlp"}, "vit": VIT, "mlp_wide": {"name": "mlp_wide"}}
    training = {name: train(client, model, 4 if model is VIT else 6) for name, model in models.items()}
    swapping = swap_words(client)
    jobs = [evaluate(client, name, trained) for name, trained in training.items()]
    for job in (*training.values(), swapping, *jobs):
        finished(client, job)
        results = client.results(job)
        assert results.provenance is not None
        assert results.provenance.packages["mypkg"] == "1.2"
        assert "broken" not in results.provenance.packages
        for evaluation in results.evaluations:
            check_metrics(evaluation)

    results = client.results(jobs[0])
    assert [evaluation.name for evaluation in results.evaluations] == MEASURED
    mirrored, confidence, downhill, square, corruptions, clean, again, mifgsm = results.evaluations
    top1 = {e.name: e.metrics["top1"].value for e in (clean, downhill, square, mifgsm)}
    assert top1["clean"] is not None
    assert top1["clean"] > 0.5
    assert top1["downhill"] == top1["clean"]
    assert max(top1["mifgsm"], top1["square"]) < top1["clean"]
    assert mirrored.metrics == again.metrics
    check_table(running[0], jobs[0], confidence)
    wide = client.results(jobs[2])
    assert wide.provenance is not None
    assert wide.provenance.spec["model"]["name"] == "mlp_wide"
    assert isinstance(corruptions.breakdown[0], Breakdown)
    assert corruptions.breakdown[0].corruption == "posterize"
    [masked] = [w for w in results.warnings if w.code == "black_box_stronger_than_white_box"]
    assert set(masked.evidence) == {"square", "downhill"}
    [swapped] = client.results(swapping).evaluations
    assert swapped.params["words"] == {"name": "backwards", "params": {}}
    rows = {(row["evaluation"], row["metric"]): row for row in client.compare(jobs)["rows"]}
    assert rows["mirrored", "top1"]["test"] is not None
    # The table is the package's, which the service does not import.
    assert rows["confidence", "confidence"]["test"] is None


@pytest.mark.slow
def test_a_worker_without_the_package_says_so(
    site: Path, tmp_path: Path, running: list[RunningService]
) -> None:
    file = tmp_path / "extra.json"
    command = [sys.executable, "-m", "assay.workers.catalog", "--out", str(file)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(site)}, check=True)
    running.append(RunningService(tmp_path / "state", ASSAY_CATALOG=str(file)))
    client = running[0].start().client
    job = client.submit(attacking(None, [{"name": "mifgsm"}], limit=8)).id
    failed = client.wait(job, timeout_seconds=120)
    assert failed.state == "failed"
    assert failed.error is not None
    assert failed.error.type == "component_missing"
    assert "the attack 'mifgsm' is of the package mypkg 1.2, which the worker" in failed.error.message
    assert "install mypkg==1.2 there" in failed.error.message
