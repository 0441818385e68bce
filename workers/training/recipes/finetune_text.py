"""Recipe for text classifiers, from the weights of a language model or from scratch: AdamW, cosine.

The papers state none for SST and IMDB; these values suit small models.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Gt, Interval, Le

from assay.workers.training.parameters import SELECTION_RULES, Validation
from assay.workers.training.recipe import Recipe, Selection

__all__ = ["finetune_text"]

TASKS = ("sequence",)
RULES = (
    ("params.warmup_epochs <= params.epochs", "warmup_epochs must not be larger than epochs"),
    (
        "params.minimum_learning_rate <= params.learning_rate",
        "minimum_learning_rate must not be larger than learning_rate",
    ),
    *SELECTION_RULES,
)


def finetune_text(
    *,
    epochs: Annotated[int, Interval(ge=1, le=10_000)] = 5,
    learning_rate: Annotated[float, Gt(0), Le(1)] = 3e-4,
    warmup_epochs: Annotated[float, Ge(0)] = 0.3,
    minimum_learning_rate: Annotated[float, Interval(ge=0, le=1)] = 0.0,
    weight_decay: Annotated[float, Interval(ge=0, le=10)] = 0.01,
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.0,
    clip_norm: Annotated[float, Gt(0)] | None = 1.0,
    ema_decay: Annotated[float, Interval(ge=0, lt=1)] | None = None,
    validation: Validation = 0.0,
    selection: Selection = "last",
) -> Recipe:
    """Train a text classifier, all of its weights, for a few epochs.

    Args:
        epochs: passes over the training set.
        learning_rate: AdamW's peak; it does not depend on the batch size.
        warmup_epochs: linear rise to the peak.
        minimum_learning_rate: where the cosine ends.
        weight_decay: of weight matrices only.
        label_smoothing: probability spread evenly over the classes.
        clip_norm: largest L2 norm of the gradient; null does not clip.
        ema_decay: decay per step of an average of the weights, written beside them; null keeps none.
        validation: share of the training set that is judged after each epoch, not trained on.
        selection: whose weights are saved: of the "last" epoch; of the best one on the "validation" share; or
            of the best one on the test set ("released_test"), which the results then warn of.
    """
    return Recipe(
        epochs=epochs,
        learning_rate=learning_rate,
        warmup_epochs=warmup_epochs,
        minimum_learning_rate=minimum_learning_rate,
        weight_decay=weight_decay,
        label_smoothing=label_smoothing,
        clip_norm=clip_norm,
        ema_decay=ema_decay,
        validation=validation,
        selection=selection,
    )
