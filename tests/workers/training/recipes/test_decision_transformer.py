"""The published recipe against torch's own construction of its optimiser and schedule."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.service.catalog.catalog import load
from assay.workers.training.optimisers import optimiser_of
from assay.workers.training.recipes.decision_transformer import decision_transformer
from assay.workers.training.recipes.small_control import small_control
from assay.workers.training.schedule import SCHEDULES


def test_the_published_values() -> None:
    recipe = decision_transformer()
    assert (recipe.steps, recipe.learning_rate, recipe.weight_decay) == (100_000, 1e-3, 1e-4)
    assert (recipe.clip_norm, recipe.optimiser, recipe.betas) == (0.25, "adamw", (0.9, 0.999))
    assert {recipe.step_examples(size, 20) for size in (1, 16, 256)} == {64}
    assert recipe.peak_learning_rate(64) == recipe.peak_learning_rate(16) == 1e-3


def test_the_rates_are_those_of_lambda_lr() -> None:
    recipe = decision_transformer(steps=60, warmup_steps=20)
    weight = torch.zeros(1, requires_grad=True)
    reference = torch.optim.AdamW([weight], lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(reference, lambda step: min((step + 1) / 20, 1))
    for step in range(60):
        found = SCHEDULES[recipe.schedule](
            step,
            steps=60,
            warmup_steps=recipe.warmup_steps or 0,
            peak=recipe.learning_rate,
            start=recipe.warmup_learning_rate,
            minimum=0.0,
        )
        assert found == pytest.approx(schedule.get_last_lr()[0], rel=1e-12)
        reference.step()
        schedule.step()


def test_the_optimiser_decays_all_parameters_as_the_released_one() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    groups = optimiser_of(model, decision_transformer()).param_groups
    assert [group["weight_decay"] for group in groups] == [1e-4]
    assert len(groups[0]["params"]) == 4
    assert len(optimiser_of(model, small_control()).param_groups) == 2


def test_only_for_control() -> None:
    for name in ("decision_transformer", "small_control"):
        assert load().find("recipe", name).tasks == ["control"]
