"""The recipes of the papers against torch's, timm's and fairseq's own construction, step by step."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from assay.service.catalog.catalog import load
from assay.workers.training.parameters import LongRangeTaskName
from assay.workers.training.recipe import Recipe
from assay.workers.training.recipes.deit import deit
from assay.workers.training.recipes.imagenet_100 import imagenet_100
from assay.workers.training.recipes.lra_primal import lra_primal
from assay.workers.training.recipes.lra_skyformer import lra_skyformer
from assay.workers.training.recipes.uea import uea
from assay.workers.training.recipes.wikitext_fairseq import wikitext_fairseq
from assay.workers.training.source import Batching, source_of

STEPS, WARMUP = 20, 4
Reference = Callable[[Any], tuple[torch.optim.Optimizer, LRScheduler]]


def adamw_one_cycle(parameters: Any) -> tuple[torch.optim.Optimizer, LRScheduler]:
    """As the code of Skyformer and Primal-Attention makes it, the cycle of the momentum included."""
    optimiser = torch.optim.AdamW(parameters, lr=1e-2, betas=(0.9, 0.999), eps=1e-6, weight_decay=0)
    share = WARMUP / STEPS
    cycle = OneCycleLR(optimiser, 1e-2, pct_start=share, anneal_strategy="linear", total_steps=STEPS)
    return optimiser, cycle


def radam_constant(parameters: Any) -> tuple[torch.optim.Optimizer, LRScheduler]:
    optimiser = torch.optim.RAdam(parameters, lr=1e-2)
    return optimiser, LambdaLR(optimiser, lambda _: 1.0)


def fairseq_adam(parameters: Any) -> tuple[torch.optim.Optimizer, LRScheduler]:
    """fairseq's `inverse_sqrt` by its formulas; its Adam is AdamW over all parameters."""
    optimiser = torch.optim.AdamW(parameters, lr=1e-2, betas=(0.9, 0.98), eps=1e-8, weight_decay=0.01)

    def share(updates: int) -> float:
        if updates < WARMUP:
            return (1e-7 + updates * (1e-2 - 1e-7) / WARMUP) / 1e-2
        return float(WARMUP**0.5 * updates**-0.5)

    return optimiser, LambdaLR(optimiser, share)


SHORT = {"steps": STEPS, "warmup_steps": WARMUP, "learning_rate": 1e-2}
CASES: dict[str, tuple[Recipe, Reference, dict[str, float]]] = {
    "uea": (
        uea(epochs=10, learning_rate=1e-2, clip_norm=0.05, total_batch=20),
        radam_constant,
        {"norm": 0.05},
    ),
    "lra_skyformer": (
        lra_skyformer(task="listops", **SHORT, clip_value=1e-3),  # type: ignore[arg-type]
        adamw_one_cycle,
        {"value": 1e-3},
    ),
    "lra_primal": (lra_primal(task="image", **SHORT), adamw_one_cycle, {}),  # type: ignore[arg-type]
    "wikitext_fairseq": (wikitext_fairseq(**SHORT), fairseq_adam, {}),  # type: ignore[arg-type]
}


def network() -> nn.Module:
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 9), nn.LayerNorm(9), nn.GELU(), nn.Linear(9, 3)
        ).double()


@pytest.mark.trains
@pytest.mark.parametrize("name", CASES)
def test_the_same_rates_and_weights_as_the_references_own_loop(
    standins: ModuleType, tmp_path: Path, name: str
) -> None:
    recipe, reference, clipping = CASES[name]
    data, model = standins.Stripes(), network()
    optimiser, schedule = reference(model.parameters())
    batch = min(recipe.step_examples(8, standins.SIZE), 43)
    given: dict[str, Any] = {"seed": 3, "image_size": standins.SIZE, "device": torch.device("cpu")}
    source = source_of(data, recipe, Batching(batch_size=batch, **given))
    rates = []
    for step, (images, labels) in enumerate(source.between(0, STEPS)):
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.zero_grad()
        functional.cross_entropy(model(images.double()), labels).backward()
        if "value" in clipping:
            nn.utils.clip_grad_value_(model.parameters(), clipping["value"])
        if "norm" in clipping:
            nn.utils.clip_grad_norm_(model.parameters(), clipping["norm"])
        optimiser.step()
        if step + 1 < STEPS:
            schedule.step()
    # In pieces of five, which the recipe's batch is made of.
    trained = standins.run(
        tmp_path, classifier=network(), data=data, recipe=recipe, batch_size=5, dtype=torch.float64
    )
    assert (trained.steps, trained.batch_size, trained.at_once) == (STEPS, batch, 5)
    log = [json.loads(line) for line in trained.log_path.read_text().splitlines()]
    assert [record["learning_rate"] for record in log] == pytest.approx(
        [rates[record["step"] - 1] for record in log], rel=1e-12
    )
    found = load_file(trained.weights_path)
    for key, tensor in model.state_dict().items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-7, atol=1e-9, msg=f"{name}: {key}")


SKYFORMER = {
    "listops": (50_000, 32, 1e-4, 1000),
    "text": (50_000, 32, 1e-4, 80),
    "retrieval": (50_000, 16, 2e-4, 800),
    "pathfinder": (50_000, 128, 2e-4, 312),
    "image": (50_000, 256, 1e-4, 175),
}
PRIMAL = {
    "listops": (5000, 32, 1e-4, 1000),
    "text": (20_000, 32, 1e-4, 8000),
    "retrieval": (30_000, 32, 1e-4, 800),
    "pathfinder": (62_400, 256, 1e-4, 312),
    "image": (35_000, 256, 1e-4, 175),
}


@pytest.mark.parametrize(("build", "table"), [(lra_skyformer, SKYFORMER), (lra_primal, PRIMAL)])
@pytest.mark.parametrize("task", get_args(LongRangeTaskName))
def test_the_published_values_of_the_long_range_arena(build: Any, table: Any, task: str) -> None:
    recipe = build(task=task)
    values = (recipe.steps, recipe.total_batch, recipe.learning_rate, recipe.warmup_steps)
    assert values == table[task]
    assert recipe.published_batch == recipe.total_batch
    assert (recipe.betas, recipe.epsilon, recipe.weight_decay) == ((0.9, 0.999), 1e-6, 0.0)
    assert recipe.clip_value == (1.0 if build is lra_skyformer else None)
    assert (recipe.clip_norm, recipe.judged_every, recipe.first_judged) == (None, None, 0.0)


def test_selections_of_the_long_range_arena_judge_as_often_as_released() -> None:
    chosen: dict[str, Any] = {"validation": 0.1, "selection": "validation"}
    skyformer = lra_skyformer(task="retrieval", **chosen)
    assert (skyformer.judged_every, skyformer.first_judged) == (1000, 0.2)
    primal = lra_primal(task="listops", **chosen)
    assert (primal.judged_every, primal.first_judged) == (50, 0.0)


def test_a_shorter_training_warms_up_for_the_same_share() -> None:
    assert lra_primal(task="listops", steps=50).warmup_steps == 10
    assert lra_skyformer(task="text", steps=10).warmup_steps == 1
    assert lra_primal(task="listops", steps=50, warmup_steps=3).warmup_steps == 3


def test_the_published_values_of_the_others() -> None:
    series, text = uea(), wikitext_fairseq()
    assert (series.optimiser, series.schedule, series.learning_rate) == ("radam", "constant", 1e-3)
    assert (series.epochs, series.total_batch, series.clip_norm, series.weight_decay) == (100, 16, 4.0, 0.0)
    assert (text.steps, text.warmup_steps, text.warmup_learning_rate) == (150_000, 6000, 1e-7)
    assert (text.learning_rate, text.weight_decay, text.decay_everything) == (1e-3, 0.01, True)
    assert text.step_examples(1, 512) == text.published_examples(512) == 4 * 16
    assert text.step_examples(1, 256) == 128, "as many words in shorter windows"
    assert wikitext_fairseq(total_tokens=None).step_examples(7, 512) == 7


def test_imagenet_100_is_deit_in_the_published_batch() -> None:
    assert imagenet_100() == deit()
    assert imagenet_100().peak_learning_rate(1024) == 1e-3
    assert imagenet_100(total_batch=None) == deit(total_batch=None)


def test_each_is_for_its_task() -> None:
    tasks = {name: load().find("recipe", name).tasks for name in (*CASES, "imagenet_100")}
    assert tasks == {
        "uea": ["series"],
        "lra_skyformer": ["sequence"],
        "lra_primal": ["sequence"],
        "wikitext_fairseq": ["language"],
        "imagenet_100": ["classification"],
    }
