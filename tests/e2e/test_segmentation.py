"""Segmentation through the real service: train a small Segmenter on shapes, then measure it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes
from tests.e2e.running import RunningService

BACKBONE = {
    "name": "symvit",
    "params": {"image_size": 32, "patch_size": 8, "depth": 1, "width": 32, "heads": 2},
}
CELLS = {"corruptions": ["contrast"], "severities": [1, 5]}
TRAINING = {
    "kind": "train",
    "model": {"name": "segmenter", "params": {"backbone": BACKBONE}},
    "data": {"name": "shapes"},
    "recipe": {"name": "small_segmenter", "params": {"epochs": 2}},
    "execution": {"device": "cpu", "batch_size": 64},
}
SEA = {"name": "sea", "params": {"epsilon": "4/255", "steps": 3}}


@pytest.mark.costly
def test_train_and_measure(shared: RunningService, tmp_path: Path) -> None:
    client = shared.client
    training = client.submit(TRAINING).id
    finished(client, training)
    evaluating = {
        "kind": "evaluate",
        "model": {"name": "segmenter", "weights": {"job": training}},
        "data": {"name": "shapes"},
        "evaluations": [{"name": "clean"}, {"name": "corruptions", "params": CELLS}, SEA],
        "save_adversarial": True,
    }
    with pytest.raises(InvalidSpec, match="and series, the model 'segmenter' is for"):
        client.submit({**evaluating, "evaluations": [{"name": "pgd"}]})
    job_id = client.submit(evaluating).id
    finished(client, job_id)
    (trained,), (measured, corrupted, attacked) = (
        client.results(one).evaluations for one in (training, job_id)
    )
    assert measured.metrics == trained.metrics
    assert set(measured.metrics) == {"miou", "mean_accuracy", "pixel_accuracy"}
    whole = {f"corrupted_{name}" for name in measured.metrics}
    assert {
        name: corrupted.metrics[name] for name in corrupted.metrics if name not in whole
    } == measured.metrics
    labels = [part.label for part in corrupted.breakdown]
    assert labels == ["mean/1", "mean/5", "contrast", "contrast/1", "contrast/5"]
    assert {name: corrupted.metrics[name].value for name in whole} == {
        f"corrupted_{name}": metric.value for name, metric in corrupted.breakdown[2].metrics.items()
    }
    for metric in measured.metrics.values():
        assert metric.n == 200
        assert metric.ci_low <= metric.value <= metric.ci_high
    assert measured.metrics["pixel_accuracy"].value > 0.6
    assert measured.warnings == []
    table, _, of_attack = outcomes(client, job_id, tmp_path / "tables").values()
    lines = list(csv.DictReader(io.StringIO(table)))
    assert len(lines) == 200
    assert len(lines[0]["target"].split()) == 5
    assert attacked.protocol == "pixel"
    clean, *losses = attacked.breakdown
    assert [part.label for part in attacked.breakdown] == ["clean", "mce", "mce_bal", "js"]
    assert clean.metrics == measured.metrics
    for name, metric in attacked.metrics.items():
        assert metric.n == 200
        assert metric.ci_low <= metric.value <= metric.ci_high
        assert metric.value <= min(part.metrics[name].value for part in losses) < clean.metrics[name].value
    assert "adaptive_attack_needed" in {warning.code for warning in attacked.warnings}
    assert attacked.backward_passes > 0
    columns = next(csv.reader(io.StringIO(of_attack)))
    assert columns[:5] == ["id", "worst", "intersection", "target", "predicted"]
    names = {item.name for item in client.artifacts(job_id)}
    assert any(name.startswith("adversarial-002-sea-") for name in names)
    found = list(csv.DictReader(io.StringIO(of_attack)))
    right, pixels = (
        sum(int(count) for line in found for count in line[name].split())
        for name in ("intersection", "target")
    )
    assert right / pixels == attacked.metrics["pixel_accuracy"].value


@pytest.mark.costly
def test_a_segmenter_on_a_trained_backbone_and_whole_images_by_windows(shared: RunningService) -> None:
    client = shared.client
    first = client.submit({**TRAINING, "recipe": {"name": "small_segmenter", "params": {"epochs": 1}}}).id
    crops = {"epochs": 1, "crop_size": 32, "short_side": 32, "learning_rate": 0.05}
    body = {
        **TRAINING,
        "model": {
            "name": "segmenter",
            "params": {"decoder": "linear"},
            "weights": {"job": first, "part": "backbone"},
        },
        "recipe": {"name": "segmenter", "params": crops},
    }
    second = client.submit(body).id
    sides = {"short_side": 64, "window": 32, "stride": 32}
    windows = {"name": "sliding_window", "params": sides}
    corrupted = {"name": "sliding_window_corruptions", "params": {**CELLS, **sides}}
    measuring = [
        client.submit(
            {
                "kind": "evaluate",
                "limit": 60,
                "model": {"name": "segmenter", "weights": {"job": training}},
                "data": {"name": "shapes"},
                "evaluations": [windows, corrupted],
                "execution": {"device": "cpu", "batch_size": 16},
            }
        ).id
        for training in (first, second)
    ]
    for job_id in (first, second, *measuring):
        finished(client, job_id)
    trained = client.results(second)
    assert trained.provenance is not None
    (source,) = trained.provenance.sources.items()
    assert source[0] == first
    whole, under = client.results(measuring[1]).evaluations
    assert (whole.forward_passes, under.forward_passes) == (4 * 60, 3 * 4 * 60)
    assert whole.metrics["miou"].n == 60
    rows = client.compare(measuring)["rows"]
    names = ["miou", "mean_accuracy", "pixel_accuracy"]
    assert [row["metric"] for row in rows] == [*names, *(f"corrupted_{name}" for name in names), *names]
    for row in rows:
        assert (row["test"]["name"], row["test"]["n"]) == ("jackknife_t", 60)
        assert row["ci_low"] <= row["difference"] <= row["ci_high"]
