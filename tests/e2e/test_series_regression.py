"""A regression through the real service: train on pulses, measure, compare, and what is refused."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes
from tests.e2e.running import RunningService

SIZE = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "length": 64}
TRAINING = {
    "kind": "train",
    "model": {"name": "series_regressor", "params": SIZE},
    "data": {"name": "pulses"},
    "recipe": {"name": "small_series_regression", "params": {"epochs": 6}},
    "execution": {"device": "cpu", "batch_size": 32},
}


@pytest.mark.costly
@pytest.mark.trains
def test_train_and_measure(shared: RunningService, tmp_path: Path) -> None:
    client = shared.client
    for change, message in (
        ({"recipe": {"name": "small_series"}}, "'small_series' is for series, .* is for series_regression"),
        ({"model": {"name": "series_transformer"}}, "'pulses' is data for series_regression"),
        ({"model": {"name": "series_regressor", "params": {"length": 32}}}, "length must be at least"),
    ):
        with pytest.raises(InvalidSpec, match=message):
            client.submit({**TRAINING, **change})
    training = client.submit(TRAINING).id
    finished(client, training)
    evaluating = {
        "kind": "evaluate",
        "model": {"name": "series_regressor", "weights": {"job": training}},
        "data": {"name": "pulses"},
        "evaluations": [{"suite": "bn_ucr"}],
    }
    for name in ("pgd", "clean", "top1"):
        with pytest.raises(InvalidSpec, match=f"'{name}' is for .* is for series_regression"):
            client.submit({**evaluating, "evaluations": [{"name": name}]})
    job_id = client.submit(evaluating).id
    finished(client, job_id)
    (trained,) = client.results(training).evaluations
    clean, noisy, *rest = client.results(job_id).evaluations
    error = clean.metrics["rmse"]
    assert (trained.name, clean.name, error.n, error.unit) == ("rmse", "rmse", 300, "number")
    assert trained.metrics["rmse"] == error
    assert clean.metrics["mae"].value <= error.value < 24  # beats per minute; the training mean alone has 29
    assert error.ci_low < error.value < error.ci_high
    for row in (noisy, *rest):
        assert row.metrics["clean_rmse"].value == pytest.approx(error.value, rel=1e-6)
    assert noisy.metrics["rmse"].value > error.value
    tables = outcomes(client, job_id, tmp_path / "tables")
    lines = list(csv.DictReader(io.StringIO(next(iter(tables.values())))))
    assert len(lines) == 300
    squares = [float(line["squared_error"]) for line in lines]
    assert (sum(squares) / 300) ** 0.5 == pytest.approx(error.value, rel=1e-9)
    first = lines[0]
    assert (float(first["prediction"]) - float(first["target"])) ** 2 == pytest.approx(squares[0], rel=1e-9)
