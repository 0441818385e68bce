"""Time series through the real service: train a small transformer on motions, then attack it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes
from tests.e2e.running import RunningService

SIZE = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "length": 48}
TRAINING = {
    "kind": "train",
    "model": {"name": "series_transformer", "params": SIZE},
    "data": {"name": "motions"},
    "recipe": {"name": "small_series", "params": {"epochs": 3, "validation": 0.2, "selection": "validation"}},
    "execution": {"device": "cpu", "batch_size": 64},
}
PERTURBATIONS = [
    {"name": "series_noise", "params": {"scale": 3.0}},
    {"name": "missing_values", "params": {"share": 0.5}},
    {"name": "time_warp"},
    {"name": "time_shift"},
]
ATTACKS = [
    {"name": "fgsm", "params": {"epsilon": 0.5}},
    {"name": "pgd", "params": {"epsilon": 0.5, "steps": 5}},
    {"name": "apgd_ce", "params": {"epsilon": 3.0, "norm": "L2", "steps": 5}},
]


@pytest.mark.costly
def test_train_and_attack(shared: RunningService, tmp_path: Path) -> None:
    client = shared.client
    training = client.submit(TRAINING).id
    finished(client, training)
    evaluating = {
        "kind": "evaluate",
        "model": {"name": "series_transformer", "weights": {"job": training}},
        "data": {"name": "motions"},
        "evaluations": [{"name": "clean"}, {"name": "top1"}, *PERTURBATIONS, *ATTACKS],
        "limit": 60,
        "save_adversarial": True,
    }
    for attack, message in (
        ({"name": "square"}, "for classification, the model 'series_transformer' is for series"),
        ({"name": "pgd", "params": {"backend": "cleverhans"}}, "time series need backend 'native'"),
    ):
        with pytest.raises(InvalidSpec, match=message):
            client.submit({**evaluating, "evaluations": [attack]})
    job_id = client.submit(evaluating).id
    finished(client, job_id)
    (trained,) = client.results(training).evaluations
    clean, top1, noisy, *rest = client.results(job_id).evaluations
    assert trained.metrics["top1"].n == 300
    assert trained.metrics["top1"].value > 1 / 4  # of six classes
    assert clean.metrics["top1"] == top1.metrics["top1"]
    assert noisy.metrics["median_linf"].value > 3  # in standard deviations
    assert noisy.metrics["attack_success_rate"].value > 0
    assert [row.forward_passes for row in (noisy, *rest[:3])] == [2 * 60] * 4
    for row, stated in zip(rest[3:], ATTACKS, strict=True):
        assert row.metrics["top1"].n == 60
        assert row.metrics["top1"].ci_low <= row.metrics["top1"].value < clean.metrics["top1"].value
        norm = str(stated["params"].get("norm", "Linf")).lower()  # type: ignore[attr-defined]
        assert 0 < row.metrics[f"median_{norm}"].value <= stated["params"]["epsilon"] + 1e-6  # type: ignore[index]
        assert "top1_8bit" not in row.metrics
    tables = outcomes(client, job_id, tmp_path / "tables")
    lines = list(csv.DictReader(io.StringIO(list(tables.values())[-1])))
    assert len(lines) == 60
    assert {"linf", "l2", "clean_correct"} <= lines[0].keys()
