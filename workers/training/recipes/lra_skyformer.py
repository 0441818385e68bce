"""Recipe of Skyformer on the Long Range Arena: AdamW without weight decay, one linear cycle, by steps.

Chen et al., NeurIPS 2021, with the values of the released configuration. Where the two disagree,
the values are the configuration's: batches of 32 texts, not 16.
"""

from __future__ import annotations

from typing import Annotated

from annotated_types import Gt

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["lra_skyformer"]

TASKS = ("sequence",)
PAPER = "Chen et al. 2021, Skyformer: remodel self-attention with Gaussian kernel and Nystrom method"
FACTS = {"arithmetic": "float16"}
RULES = parameters.LONG_RANGE_RULES
PUBLISHED: dict[parameters.LongRangeTaskName, parameters.LongRangeValues] = {
    "listops": parameters.LongRangeValues(50_000, 32, 1e-4, 1000, 500),
    "text": parameters.LongRangeValues(50_000, 32, 1e-4, 80, 500),
    "retrieval": parameters.LongRangeValues(50_000, 16, 2e-4, 800, 1000),
    "pathfinder": parameters.LongRangeValues(50_000, 128, 2e-4, 312, 500),
    "image": parameters.LongRangeValues(50_000, 256, 1e-4, 175, 50),
}


def lra_skyformer(
    *,
    task: parameters.LongRangeTask = None,
    steps: parameters.LongRangeSteps = None,
    learning_rate: parameters.LongRangeRate = None,
    warmup_steps: parameters.LongRangeWarmup = None,
    clip_value: Annotated[float, Gt(0)] | None = 1.0,
    total_batch: parameters.LongRangeBatch = None,
    validation: parameters.JudgedShare = 0.0,
    selection: parameters.SelectedStep = "last",
) -> Recipe:
    """Train a sequence classifier on a task of the Long Range Arena as Skyformer was.

    The released code keeps the best weights on the development set after a fifth of the steps, judged every
    50 to 1000 steps: `selection` = "validation" does so on a share of the training set.

    Args:
        clip_value: largest element of the gradient; null does not clip.
    """
    return parameters.long_range_recipe(
        parameters.published_of(task, PUBLISHED),
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        total_batch=total_batch,
        clip_value=clip_value,
        validation=validation,
        selection=selection,
        first_judged=0.2,
    )
