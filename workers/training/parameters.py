"""Shared parameters of the recipes: bounded types, and the work they imply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

from annotated_types import Ge, Gt, Interval, Le, doc

from assay.workers.training.recipe import AdversarialTraining, Augmentation, Recipe, Selection

Epochs = Annotated[int, Interval(ge=1, le=10_000), doc("passes over the training set.")]
Steps = Annotated[int, Interval(ge=1, le=100_000_000), doc("optimiser steps, the warm-up among them.")]
LearningRate = Annotated[float, Gt(0), Le(1), doc("AdamW's peak; it does not depend on the batch size.")]
MinimumLearningRate = Annotated[float, Interval(ge=0, le=1), doc("where the cosine ends.")]
WarmupEpochs = Annotated[float, Ge(0), doc("linear rise to the peak.")]
WarmupFromLow = Annotated[WarmupEpochs, doc("linear rise to the peak, from 1e-6.")]
WarmupSteps = Annotated[int, Interval(ge=0, le=100_000_000)]
WeightDecay = Annotated[float, Interval(ge=0, le=10), doc("of weight matrices only.")]
ClipNorm = Annotated[
    Annotated[float, Gt(0)] | None, doc("largest L2 norm of the gradient; null does not clip.")
]
LabelSmoothing = Annotated[float, Interval(ge=0, lt=1), doc("probability spread evenly over the classes.")]
EmaDecay = Annotated[
    Annotated[float, Interval(ge=0, lt=1)] | None,
    doc("decay per step of an average of the weights, written beside them; null keeps none."),
]
WARMUP_RULE = ("params.warmup_epochs <= params.epochs", "warmup_epochs must not be larger than epochs")
WARMUP_STEPS_RULE = ("params.warmup_steps <= params.steps", "warmup_steps must not be larger than steps")
MINIMUM_RULE = (
    "params.minimum_learning_rate <= params.learning_rate",
    "minimum_learning_rate must not be larger than learning_rate",
)
COSINE_RULES = (WARMUP_RULE, MINIMUM_RULE)

Adversarial = Annotated[
    Literal["pgd_at", "trades"] | None,
    doc('train on adversarial examples: "pgd_at" or "trades"; null on the images as they are.'),
]
AttackEpsilon = Annotated[
    float, "fraction", Interval(gt=0, le=1), doc("radius of the attack in training, Linf, in pixel units.")
]
AttackSteps = Annotated[int, Interval(ge=1, le=1000), doc("gradient steps of that attack.")]
AttackStepSize = Annotated[
    Annotated[float, "fraction", Interval(gt=0, le=1)] | None,
    doc("length of one, in pixel units; null is a quarter of the radius."),
]
Beta = Annotated[float, Interval(ge=0, le=1000), doc("weight of the second term of TRADES.")]

# Examples per step, and which weights are saved: see `Recipe`.
TotalBatch = Annotated[
    Annotated[int, Interval(ge=1, le=1_048_576)] | None,
    doc(
        "examples of a step, reached by accumulating the gradients of smaller batches; null takes "
        "execution.batch_size."
    ),
]
WindowsPerStep = Annotated[
    TotalBatch,
    doc(
        "windows of a step, reached by accumulating the gradients of smaller batches; null takes "
        "execution.batch_size."
    ),
]
ScaledBatch = Annotated[
    TotalBatch,
    doc(
        "examples of a step, reached by accumulating the gradients of smaller batches; null takes "
        "execution.batch_size, whose learning rate is another one then."
    ),
]
Validation = Annotated[
    float,
    Interval(ge=0, le=0.5),
    doc("share of the training set that is judged after each epoch, not trained on."),
]
SELECTION_RULES = (
    (
        "params.selection != 'validation' or params.validation > 0",
        "selection is 'validation': validation must be above 0",
    ),
    (
        "params.selection != 'released_test' or params.validation == 0",
        "selection is 'released_test': validation must be 0",
    ),
)
LONG_RANGE_RULES = (
    (
        "params.warmup_steps is None or params.steps is None or params.warmup_steps <= params.steps",
        "warmup_steps must not be larger than steps",
    ),
    *SELECTION_RULES,
)

# Passes per example and visit: `AdversarialTraining.passes`, or one.
_UPDATE = "((params.adversarial == 'trades' and 2) or 1)"
_ATTACKED = "(params.adversarial is not None and params.attack_steps{} or 0)"
ADVERSARIAL_PASSES = (f"{_ATTACKED.format(' + 1')} + {_UPDATE}", f"{_ATTACKED.format('')} + {_UPDATE}")

# Augmentation of DeiT and FAN: random crops, RandAugment, mixup or cutmix, erasing. Both name a colour
# jitter, which timm skips with RandAugment.
IMAGENET_AUGMENTATION = Augmentation(
    flip=True,
    smallest_crop=0.08,
    rand_augment="rand-m9-mstd0.5-inc1",
    mixup=0.8,
    cutmix=1.0,
    erase=0.25,
    repeats=3,
)

STEP_SHARE = 0.25  # Step of Madry et al. (2/255 for a radius of 8/255); TRADES: 0.007 for 0.031.


def adversarial_training(
    objective: Adversarial, epsilon: float, steps: int, step_size: float | None, beta: float
) -> AdversarialTraining | None:
    """Adversarial training of a recipe, from its parameters; None without an objective."""
    if objective is None:
        return None
    step_size = STEP_SHARE * epsilon if step_size is None else step_size
    return AdversarialTraining(objective, epsilon, steps, step_size, beta)


LongRangeTaskName = Literal["listops", "text", "retrieval", "pathfinder", "image"]
# Null is the data's own task.
LongRangeTask = Annotated[
    LongRangeTaskName | None,
    "fact:long_range_task",
    doc("whose published values are taken; null takes the data's own task, and other data need it stated."),
]
LongRangeSteps = Annotated[
    Steps | None, doc("optimiser steps, the warm-up among them; null takes the task's.")
]
LongRangeRate = Annotated[
    LearningRate | None, doc("AdamW's peak; null takes the task's. It does not depend on the batch size.")
]
LongRangeWarmup = Annotated[
    WarmupSteps | None,
    doc("linear rise to the peak from its 25th part; null takes the task's share of the steps."),
]
LongRangeBatch = Annotated[
    TotalBatch,
    doc(
        "examples of a step, reached by accumulating the gradients of smaller batches; null takes the task's."
    ),
]
JudgedShare = Annotated[Validation, doc("share of the training set that is judged and not trained on.")]
SelectedStep = Annotated[
    Selection,
    doc(
        'whose weights are saved: of the "last" step; of the best judgement on the "validation" share; or '
        'of the best one on the test set ("released_test"), which the results then warn of.'
    ),
]
Selected = Annotated[
    Selection,
    doc(
        'whose weights are saved: of the "last" epoch; of the best one on the "validation" share; or '
        'of the best one on the test set ("released_test"), which the results then warn of.'
    ),
]
# torch's `OneCycleLR`: from a 25th of the peak to a 10 000th of that; it moves the first beta.
CYCLE_START, CYCLE_END, CYCLE_MOMENTUM = 25.0, 1e4, (0.85, 0.95)


class LongRangeValues(NamedTuple):
    """Published values for a task of the Long Range Arena."""

    steps: int  # of the training
    batch: int  # examples of a step
    learning_rate: float  # the peak
    warmup: int  # steps of the rise
    judged_every: int  # steps between two judgements on the development set


def published_of(
    task: LongRangeTaskName | None, published: Mapping[LongRangeTaskName, LongRangeValues]
) -> LongRangeValues:
    """The published values of a task. Raises ValueError: no task is stated."""
    if task is None:
        raise ValueError(f"task must be stated, as the data states none: one of {', '.join(published)}")
    return published[task]


def long_range_recipe(
    published: LongRangeValues,
    *,
    steps: int | None,
    learning_rate: float | None,
    warmup_steps: int | None,
    total_batch: int | None,
    clip_value: float | None,
    validation: float,
    selection: Selection,
    first_judged: float,
) -> Recipe:
    """AdamW without weight decay and one linear cycle, as both papers train on the Long Range Arena.

    None is the published value; the warm-up keeps its share of other steps. `clip_value`: the gradient's
    largest element, None does not clip; `first_judged`: share of the steps before selectable weights.
    """
    steps = steps or published.steps
    rate = learning_rate or published.learning_rate
    share = published.warmup * steps / published.steps
    return Recipe(
        epochs=1,
        steps=steps,
        learning_rate=rate,
        schedule="one_cycle_linear",
        warmup_steps=min(steps, max(round(share), 1) if warmup_steps is None else warmup_steps),
        warmup_learning_rate=rate / CYCLE_START,
        minimum_learning_rate=rate / CYCLE_START / CYCLE_END,
        momentum_cycle=CYCLE_MOMENTUM,
        epsilon=1e-6,
        clip_value=clip_value,
        total_batch=total_batch or published.batch,
        published_batch=published.batch,
        validation=validation,
        selection=selection,
        judged_every=None if selection == "last" else published.judged_every,
        first_judged=0.0 if selection == "last" else first_judged,
    )
