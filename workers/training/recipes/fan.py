"""Recipe of FAN (fully attentional networks), also used for RPC-FAN."""

from __future__ import annotations

from dataclasses import replace

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe
from assay.workers.training.recipes.deit import deit

__all__ = ["fan"]

TASKS = ("classification",)
PAPER = "Zhou et al. 2022, Understanding the robustness in vision transformers"
FACTS = {"arithmetic": "float16"}
PASSES = parameters.ADVERSARIAL_PASSES
RULES = (*parameters.COSINE_RULES, *parameters.SELECTION_RULES)


def fan(
    *,
    epochs: parameters.Epochs = 300,
    learning_rate: parameters.LearningRate = 2e-3,
    warmup_epochs: parameters.WarmupFromLow = 5.0,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-6,
    weight_decay: parameters.WeightDecay = 0.05,
    clip_norm: parameters.ClipNorm = None,
    repeated_augmentation: bool = True,
    total_batch: parameters.ScaledBatch = 1024,
    validation: parameters.Validation = 0.0,
    selection: parameters.Selected = "last",
    adversarial: parameters.Adversarial = None,
    attack_epsilon: parameters.AttackEpsilon = 4 / 255,
    attack_steps: parameters.AttackSteps = 3,
    attack_step_size: parameters.AttackStepSize = None,
    trades_beta: parameters.Beta = 6.0,
) -> Recipe:
    """Train a FAN on ImageNet: the augmentation of DeiT, a higher learning rate, 300 epochs.

    The learning rate changes at the beginning of an epoch, and the cosine runs from epoch 0, behind the
    warm-up: timm's schedule, without its epochs at the lowest rate after the end. The models have no
    drop-path. The raw weights count; their average (decay 0.99992) is saved, too.

    Args:
        learning_rate: AdamW's peak for batches of 1024; it is scaled in proportion to the batch.
        repeated_augmentation: visit a third of the images in each epoch, three times each.
    """
    of_deit = deit(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        clip_norm=clip_norm,
        repeated_augmentation=repeated_augmentation,
        total_batch=total_batch,
        validation=validation,
        selection=selection,
        adversarial=adversarial,
        attack_epsilon=attack_epsilon,
        attack_steps=attack_steps,
        attack_step_size=attack_step_size,
        trades_beta=trades_beta,
    )
    return replace(of_deit, epochs_late=0, reference_batch=1024, ema_decay=0.99992)
