"""Recipe of Primal-Attention on the Long Range Arena: AdamW without weight decay, one linear cycle, by steps.

Chen et al., NeurIPS 2023, with the values of the released configuration; it does not clip.
"""

from __future__ import annotations

from assay.workers.training import parameters
from assay.workers.training.recipe import Recipe

__all__ = ["lra_primal"]

TASKS = ("sequence",)
PAPER = "Chen et al. 2023, Primal-Attention: Self-attention through Asymmetric Kernel SVD"
FACTS = {"arithmetic": "float16"}
RULES = parameters.LONG_RANGE_RULES
PUBLISHED: dict[parameters.LongRangeTaskName, parameters.LongRangeValues] = {
    "listops": parameters.LongRangeValues(5000, 32, 1e-4, 1000, 50),
    "text": parameters.LongRangeValues(20_000, 32, 1e-4, 8000, 500),
    "retrieval": parameters.LongRangeValues(30_000, 32, 1e-4, 800, 300),
    "pathfinder": parameters.LongRangeValues(62_400, 256, 1e-4, 312, 312),
    "image": parameters.LongRangeValues(35_000, 256, 1e-4, 175, 175),
}


def lra_primal(
    *,
    task: parameters.LongRangeTask = None,
    steps: parameters.LongRangeSteps = None,
    learning_rate: parameters.LongRangeRate = None,
    warmup_steps: parameters.LongRangeWarmup = None,
    total_batch: parameters.LongRangeBatch = None,
    validation: parameters.JudgedShare = 0.0,
    selection: parameters.SelectedStep = "last",
) -> Recipe:
    """Train a sequence classifier on a task of the Long Range Arena as Primal-Attention was.

    The released code keeps the best weights on the development set, judged every 50 to 500 steps:
    `selection` = "validation" does so on a share of the training set.
    """
    return parameters.long_range_recipe(
        parameters.published_of(task, PUBLISHED),
        steps=steps,
        learning_rate=learning_rate,
        warmup_steps=warmup_steps,
        total_batch=total_batch,
        clip_value=None,
        validation=validation,
        selection=selection,
        first_judged=0.0,
    )
