"""Segmentation through the real service: train a small Segmenter on shapes, then measure it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest

from service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes
from tests.e2e.running import RunningService

Start = Callable[..., RunningService]

BACKBONE = {
    "name": "symvit",
    "params": {"image_size": 32, "patch_size": 8, "depth": 1, "width": 32, "heads": 2},
}
TRAINING = {
    "kind": "train",
    "model": {"name": "segmenter", "params": {"backbone": BACKBONE}},
    "data": {"name": "shapes"},
    "recipe": {"name": "small_segmenter", "params": {"epochs": 2}},
    "execution": {"device": "cpu", "batch_size": 64},
}


def test_train_and_measure(start_service: Start, tmp_path: Path) -> None:
    client = start_service(tmp_path / "state").client
    training = client.submit(TRAINING).id
    finished(client, training)
    evaluating = {
        "kind": "evaluate",
        "model": {"name": "segmenter", "weights": {"job": training}},
        "data": {"name": "shapes"},
        "evaluations": [{"name": "clean"}],
    }
    with pytest.raises(InvalidSpec, match="for classification, the model 'segmenter' is for segmentation"):
        client.submit({**evaluating, "evaluations": [{"name": "pgd"}]})
    job_id = client.submit(evaluating).id
    finished(client, job_id)
    (trained,), (measured,) = client.results(training).evaluations, client.results(job_id).evaluations
    assert measured.metrics == trained.metrics
    assert set(measured.metrics) == {"miou", "mean_accuracy", "pixel_accuracy"}
    for metric in measured.metrics.values():
        assert metric.n == 200
        assert metric.ci_low <= metric.value <= metric.ci_high
    assert measured.metrics["pixel_accuracy"].value > 0.6
    assert measured.warnings == []
    (table,) = outcomes(client, job_id, tmp_path / "tables").values()
    lines = list(csv.DictReader(io.StringIO(table)))
    assert len(lines) == 200
    assert len(lines[0]["target"].split()) == 5
