"""Recipe of the UEA time series of Primal-Attention: RAdam at a constant learning rate.

Chen et al., NeurIPS 2023, with the values of the released scripts and of the framework that they build on
(mvts_transformer, Flowformer). RAdam is torch's; the authors' copy is Liu et al.'s, which becomes adaptive at
rho >= 5 in place of > 5: no step has exactly 5.
"""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["uea"]

TASKS = ("series",)
PAPER = "Chen et al. 2023, Primal-Attention: Self-attention through Asymmetric Kernel SVD"
RULES = parameters.SELECTION_RULES


def uea(
    *,
    epochs: parameters.Epochs = 100,
    learning_rate: parameters.LearningRate = 1e-3,
    clip_norm: parameters.ClipNorm = 4.0,
    total_batch: parameters.TotalBatch = 16,
    validation: parameters.Validation = 0.0,
    selection: parameters.Selected = "last",
) -> Recipe:
    """Train a classifier of time series as on the UEA archive: RAdam, 100 epochs in batches of 16.

    PEMS-SF takes 400 epochs. The released code reports the best epoch on the test set: `selection` =
    "released_test". The model standardises by the whole training set, its validation share included.

    Args:
        learning_rate: RAdam's, which stays.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        schedule="constant",
        optimiser="radam",
        clip_norm=clip_norm,
        total_batch=total_batch,
        published_batch=16,
        validation=validation,
        selection=selection,
    )
