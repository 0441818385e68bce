"""Errors in the target's unit, independent of batch, order and padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from assay.models.layers.series_model import RegressionModel
from assay.models.series_regressor import series_regressor
from assay.workers import catalog
from assay.workers.data.formats.series import TargetSeries, statistics_of
from assay.workers.evaluation.engine.shard import Shard

LENGTHS = (9, 1, 4, 9, 6, 2, 8)
LENGTH = 9
TARGETS = (100.0, 120.0, 90.5, 111.0, 140.0, 99.0, 130.0)
PERTURBATIONS = ("series_noise", "missing_values", "time_warp", "time_shift")


def shard(length: int = LENGTH, **changes: Any) -> Shard:
    generator = torch.Generator().manual_seed(5)
    values = [torch.randn(steps, 2, generator=generator).numpy() for steps in LENGTHS]
    data = TargetSeries(
        name="law",
        ids=[f"s{number}" for number in range(len(LENGTHS))],
        values=values,
        targets=TARGETS,
        statistics=statistics_of(values),
        training_targets=TARGETS,
    )
    backbone = series_regressor(1, 2, width=8, depth=1, heads=2, hidden=8, length=length)
    for name, parameter in backbone.named_parameters():
        if name.endswith("bias") or "positions" in name:  # every place is the same for any `length`
            parameter.data.zero_()
        elif parameter.dim() > 1:
            drawn = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            parameter.data.copy_(0.4 * drawn)
    model = RegressionModel(backbone, data.mean, data.std, data.target_mean, data.target_std).double().eval()
    given = Shard(
        data=data,
        order=range(len(LENGTHS)),
        classifier=model,
        image_size=length,
        batch_size=3,
        device=torch.device("cpu"),
        dtype="float64",
    )
    return replace(given, **changes)


def measured(name: str, where: Shard) -> Any:
    return catalog.build("evaluation", name, {})().measure(where)


def test_errors_are_those_of_the_models_answers_in_the_targets_unit() -> None:
    seen: list[int] = []
    where = shard(progress=seen.append)
    found = measured("rmse", where)
    with torch.no_grad():
        answers = where.classifier(where.images(range(len(LENGTHS))).double())[:, 0]
        outputs = where.classifier.backbone(where.classifier.normalize(where.images(range(7)).double()))[:, 0]
    targets = torch.tensor(TARGETS, dtype=torch.float64)
    model: Any = where.classifier
    torch.testing.assert_close(answers, outputs * targets.std() + targets.mean(), rtol=1e-6, atol=1e-9)
    assert float(model.target_mean) == pytest.approx(float(targets.mean()), rel=1e-6)
    assert float(model.target_std) == pytest.approx(float(targets.std()), rel=1e-6)
    torch.testing.assert_close(found.predictions, answers, rtol=0, atol=1e-9)
    assert found.predictions.std() > 1  # the answers differ
    columns = found.columns()
    assert columns["squared_error"] == pytest.approx(((answers - targets) ** 2).tolist(), abs=1e-6)
    assert columns["target"] == list(TARGETS)
    assert (columns["forward"], columns["backward"]) == ([1] * 7, [0] * 7)
    assert "clean_squared_error" not in columns
    assert seen == [3, 6, 7]


@pytest.mark.parametrize("name", ["rmse", *PERTURBATIONS])
def test_outcomes_depend_on_neither_batch_nor_order_nor_padding(name: str) -> None:
    first = measured(name, shard())
    for other in (
        measured(name, shard(order=range(6, -1, -1), batch_size=7)),
        measured(name, shard(LENGTH + 4)),
    ):
        places = [other.ids.index(one) for one in first.ids]
        torch.testing.assert_close(first.predictions, other.predictions[places], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_a_perturbed_row_has_the_error_without_it_too(name: str) -> None:
    found, clean = measured(name, shard()), measured("rmse", shard())
    columns = found.columns()
    assert columns["clean_squared_error"] == pytest.approx(clean.columns()["squared_error"], abs=1e-9)
    assert columns["squared_error"] != pytest.approx(columns["clean_squared_error"], abs=1e-3)
    assert columns["forward"] == [2] * 7


def test_an_answer_that_is_not_finite_has_no_error() -> None:
    where = shard()
    where.classifier.backbone.head.bias.data.fill_(float("inf"))  # type: ignore[union-attr, operator]
    columns = measured("rmse", where).columns()
    assert columns["prediction"] == columns["squared_error"] == [None] * 7


def test_the_unit_is_part_of_the_weights() -> None:
    model = shard().classifier
    assert {"target_mean", "target_std"} <= model.state_dict().keys()
    with pytest.raises(ValueError, match="target_std must be above 0"):
        RegressionModel(torch.nn.Identity(), [0.0], [1.0], 0.0, 0.0)
