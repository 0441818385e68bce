from __future__ import annotations

import pytest
import torch
from torch import nn

from assay.workers.training.optimisers import optimiser_of, undecayed_names
from assay.workers.training.recipe import Recipe

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
