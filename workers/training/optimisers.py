"""The optimiser of a recipe: torch's SGD, Adam, AdamW or RAdam.

AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019. RAdam: Liu et al., "On the
Variance of the Adaptive Learning Rate and Beyond", ICLR 2020, algorithm 2, with decoupled weight decay, as in
its authors' code. SGD and Adam add the decay to the gradient. Weight decay is restricted as in timm, whose
import takes seconds.
"""

from __future__ import annotations

import torch
from torch import nn

from assay.workers.training.recipe import Recipe

# Inputs of a transformer, although of three dimensions.
UNDECAYED = frozenset({"pos_embed", "cls_token", "dist_token", "reg_token", "mask_token"})


def undecayed_names(model: nn.Module) -> set[str]:
    """Full names of the parameters that get no weight decay.

    Biases, parameters of at most one dimension, `UNDECAYED`, and timm's `no_weight_decay()` of a submodule.
    """
    names = {
        name
        for name, parameter in model.named_parameters()
        if parameter.ndim <= 1 or name.endswith(".bias") or name.rpartition(".")[2] in UNDECAYED
    }
    for prefix, module in model.named_modules():
        declared = getattr(module, "no_weight_decay", None)
        if callable(declared):
            names |= {f"{prefix}.{name}" if prefix else name for name in declared()}
    return names


def optimiser_of(model: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    """Optimiser over parameters with gradients (ValueError: none); each step sets its rate."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not trained:
        raise ValueError("the model has no parameter that requires a gradient: nothing to train")
    undecayed = set() if recipe.decay_everything else undecayed_names(model)
    decayed_group = [weight for name, weight in trained.items() if name not in undecayed]
    undecayed_group = [weight for name, weight in trained.items() if name in undecayed]
    groups = [
        {"params": decayed_group, "weight_decay": recipe.weight_decay},
        {"params": undecayed_group, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    # With a small model, calls per tensor cost more than the arithmetic.
    if recipe.optimiser == "sgd":
        # If float16 skips the first step, torch's fused SGD goes on from an uninitialised momentum.
        return torch.optim.SGD(
            groups, lr=recipe.learning_rate, momentum=recipe.momentum, nesterov=recipe.nesterov, foreach=True
        )
    rate, betas, epsilon = recipe.learning_rate, recipe.betas, recipe.epsilon
    if recipe.optimiser == "radam":
        return torch.optim.RAdam(
            groups, lr=rate, betas=betas, eps=epsilon, decoupled_weight_decay=True, foreach=True
        )
    kind = torch.optim.Adam if recipe.optimiser == "adam" else torch.optim.AdamW
    return kind(groups, lr=rate, betas=betas, eps=epsilon, fused=True)


def set_rates(optimiser: torch.optim.Optimizer, learning_rate: float, momentum: float | None) -> None:
    """Set the next step's learning rate, and unless None the momentum: SGD's, or the first beta."""
    for group in optimiser.param_groups:
        group["lr"] = learning_rate
        if momentum is not None and "betas" in group:
            group["betas"] = (momentum, group["betas"][1])
        elif momentum is not None:
            group["momentum"] = momentum
