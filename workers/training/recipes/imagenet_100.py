"""Recipe of Primal.+DeiT-Small: DeiT's, in batches of 1024."""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe
from assay.workers.training.recipes.deit import deit

__all__ = ["imagenet_100"]

TASKS = ("classification",)
PAPER = "Chen et al. 2023, Primal-Attention: Self-attention through Asymmetric Kernel SVD"
FACTS = {"arithmetic": "float16"}
RULES = (*parameters.COSINE_RULES, *parameters.SELECTION_RULES)


def imagenet_100(
    *,
    epochs: parameters.Epochs = 300,
    learning_rate: parameters.LearningRate = 5e-4,
    warmup_epochs: parameters.WarmupFromLow = 5.0,
    minimum_learning_rate: parameters.MinimumLearningRate = 1e-5,
    weight_decay: parameters.WeightDecay = 0.05,
    total_batch: parameters.TotalBatch = 1024,
    validation: parameters.Validation = 0.0,
    selection: parameters.Selected = "last",
) -> Recipe:
    """Train DeiT-Small or Primal.+DeiT-Small from scratch on ImageNet-100 or -1K, as the Primal paper does.

    The paper follows DeiT's protocol for both sets; its colour jitter of 0.3 is not applied, because timm
    skips it with RandAugment. The weight of the auxiliary loss, eta, is the model's.

    Args:
        learning_rate: AdamW's peak for batches of 512; it is scaled in proportion to the batch.
    """
    return deit(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        total_batch=total_batch,
        validation=validation,
        selection=selection,
    )
