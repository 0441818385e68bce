from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pytest
import torch
from torch import nn

from assay.workers.training.optimisers import optimiser_of, set_rates, undecayed_names
from assay.workers.training.recipe import Optimiser, Recipe

RECIPE = Recipe(epochs=1, learning_rate=0.1, weight_decay=0.5)


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pos_embed = nn.Parameter(torch.ones(1, 4, 3))
        self.cls_token = nn.Parameter(torch.ones(1, 1, 3))
        self.temperature = nn.Parameter(torch.ones(2, 1, 1))
        self.norm = nn.LayerNorm(3)
        self.linear = nn.Linear(3, 3)

    def no_weight_decay(self) -> set[str]:
        return {"temperature"}


def test_only_weight_matrices_decay() -> None:
    model = nn.Sequential(Tokens(), nn.Conv2d(1, 1, 2))
    decayed = {name for name, _ in model.named_parameters()} - undecayed_names(model)
    assert decayed == {"0.linear.weight", "1.weight"}


@pytest.mark.trains
def test_decay_shrinks_what_decays_and_nothing_else() -> None:
    model = Tokens()
    optimiser = optimiser_of(model, RECIPE)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for weight in model.parameters():
        weight.grad = torch.zeros_like(weight)
    optimiser.step()
    for name, weight in model.named_parameters():
        factor = 1 - 0.1 * 0.5 if name == "linear.weight" else 1.0
        assert torch.allclose(weight, before[name] * factor), name


def test_frozen_parameters_are_left_out() -> None:
    model = Tokens()
    model.linear.requires_grad_(False)
    trained = {id(weight) for group in optimiser_of(model, RECIPE).param_groups for weight in group["params"]}
    assert id(model.linear.weight) not in trained
    assert id(model.pos_embed) in trained


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to train"):
        optimiser_of(nn.Linear(2, 2).requires_grad_(False), RECIPE)


@pytest.mark.trains
def test_sgd_is_torchs_with_momentum() -> None:
    recipe = Recipe(epochs=1, learning_rate=0.1, optimiser="sgd", momentum=0.5)
    weight = nn.Linear(1, 1, bias=False).double()
    before = weight.weight.item()
    optimiser = optimiser_of(weight, recipe)
    for _ in range(2):
        weight.weight.grad = torch.ones_like(weight.weight)
        optimiser.step()
    assert weight.weight.item() == pytest.approx(before - 0.1 - 0.1 * 1.5, rel=1e-12)


REFERENCES: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "radam": partial(torch.optim.RAdam, decoupled_weight_decay=True),
}


@pytest.mark.trains
@pytest.mark.parametrize("name", REFERENCES)
def test_adams_are_torchs(name: Any) -> None:
    """Twenty steps with rates that change: RAdam becomes adaptive in the sixth."""
    recipe = Recipe(
        epochs=1,
        learning_rate=1.0,
        weight_decay=0.3,
        decay_everything=True,
        optimiser=name,
        betas=(0.8, 0.95),
        epsilon=1e-6,
    )
    ours, theirs = nn.Linear(3, 2).double(), nn.Linear(3, 2).double()
    theirs.load_state_dict(ours.state_dict())
    optimiser = optimiser_of(ours, recipe)
    reference = REFERENCES[name](theirs.parameters(), betas=(0.8, 0.95), eps=1e-6, weight_decay=0.3)
    draws = torch.Generator().manual_seed(0)
    for step in range(20):
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=draws, dtype=torch.float64)
            other.grad = one.grad.clone()
        set_rates(optimiser, 0.1 / (step + 1), None)
        reference.param_groups[0]["lr"] = 0.1 / (step + 1)
        optimiser.step()
        reference.step()
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.trains
def test_decay_is_in_the_gradient_of_adam_and_beside_it_in_the_others() -> None:
    """Adam's step forgets the gradient's scale: its decay is not in proportion to the weight."""
    moved: dict[str, float] = {}
    for name in get_args(Optimiser):
        weight = nn.Linear(1, 1, bias=False).double()
        with torch.no_grad():
            weight.weight.fill_(4.0)
        recipe = Recipe(epochs=1, learning_rate=0.1, weight_decay=0.5, optimiser=name, momentum=0.0)
        weight.weight.grad = torch.zeros_like(weight.weight)
        optimiser_of(weight, recipe).step()
        moved[name] = 4.0 - weight.weight.item()
    in_proportion = 0.1 * 0.5 * 4.0
    expected = {"adam": 0.1, "adamw": in_proportion, "radam": in_proportion, "sgd": in_proportion}
    assert moved == pytest.approx(expected, rel=1e-6)


def test_everything_decays_where_the_recipe_says_so() -> None:
    (group,) = optimiser_of(Tokens(), replace(RECIPE, decay_everything=True)).param_groups
    assert group["weight_decay"] == 0.5
    assert len(group["params"]) == len(list(Tokens().parameters()))


def test_a_momentum_is_set_where_the_optimiser_has_it() -> None:
    adam, sgd = (optimiser_of(nn.Linear(1, 1), replace(RECIPE, optimiser=name)) for name in ("adamw", "sgd"))
    for optimiser in (adam, sgd):
        set_rates(optimiser, 0.25, None)
        assert optimiser.param_groups[0]["lr"] == 0.25
    assert (adam.param_groups[0]["betas"], sgd.param_groups[0]["momentum"]) == ((0.9, 0.999), 0.9)
    for optimiser in (adam, sgd):
        set_rates(optimiser, 0.25, 0.7)
    assert (adam.param_groups[0]["betas"], sgd.param_groups[0]["momentum"]) == ((0.7, 0.999), 0.7)
