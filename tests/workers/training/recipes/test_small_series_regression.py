"""The loss is the squared error of standardised targets, and a training learns."""

from __future__ import annotations

import pytest
import torch

from assay.models.layers.series_model import RegressionModel
from assay.models.series_regressor import series_regressor
from assay.workers.data.pulses import pulses
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.learner import Learner
from assay.workers.training.recipes.small_series_regression import small_series_regression

SIZE = {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "length": 64, "dropout": 0.0}


@pytest.mark.trains
@pytest.mark.parametrize("at_once", [None, 8])
def test_the_loss_is_the_squared_error_over_the_variance(at_once: int | None) -> None:
    torch.manual_seed(0)
    data = pulses(None, "train")
    backbone = series_regressor(1, 3, **SIZE)  # type: ignore[arg-type]
    model = RegressionModel(backbone, data.mean, data.std, data.target_mean, data.target_std)
    learner = Learner(
        model,
        small_series_regression(),
        seed=0,
        data=data,
        device=torch.device("cpu"),
        dtype=torch.float64,
        batch_size=24,
        at_once=at_once,
    )
    series, truth = data.images(range(24), 64), data.labels[:24]
    with torch.no_grad():
        expected = ((model(series.double())[:, 0] - truth) / data.target_std).square().mean()
    losses = [
        learner.update(TrainingBatch(series, truth), step=step, learning_rate=3e-3).loss for step in range(40)
    ]
    assert losses[0] == pytest.approx(float(expected), rel=1e-5)
    assert losses[-1] < 0.5 * losses[0]
    assert learner.unjudged
    statistics = (float(model.target_mean), float(model.target_std))
    assert statistics == pytest.approx((data.target_mean, data.target_std), rel=1e-6)
