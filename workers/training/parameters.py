"""Shared parameters of the recipes: bounded types, and the work they imply."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import Interval

from assay.workers.training.recipe import AdversarialTraining, Augmentation

Adversarial = Literal["pgd_at", "trades"] | None
AttackEpsilon = Annotated[float, "fraction", Interval(gt=0, le=1)]  # pixel units
AttackSteps = Annotated[int, Interval(ge=1, le=1000)]
AttackStepSize = Annotated[float, "fraction", Interval(gt=0, le=1)] | None  # pixel units
Beta = Annotated[float, Interval(ge=0, le=1000)]

# Forward and backward passes per example and visit: those of `AdversarialTraining.passes`, or one.
_UPDATE = "((params.adversarial == 'trades' and 2) or 1)"
_ATTACKED = "(params.adversarial is not None and params.attack_steps{} or 0)"
ADVERSARIAL_PASSES = (
    f"{_ATTACKED.format(' + 1')} + {_UPDATE}",
    f"{_ATTACKED.format('')} + {_UPDATE}",
)

# Augmentation of DeiT, shared by FAN: random crops, RandAugment, mixup or cutmix, erasing. Both name a colour
# jitter too, but timm skips it with RandAugment.
IMAGENET_AUGMENTATION = Augmentation(
    flip=True,
    smallest_crop=0.08,
    rand_augment="rand-m9-mstd0.5-inc1",
    mixup=0.8,
    cutmix=1.0,
    erase=0.25,
    repeats=3,
)

# Step size of Madry et al. (2/255 for a radius of 8/255); TRADES takes 0.007 for 0.031.
STEP_SHARE = 0.25


def adversarial_training(
    objective: Adversarial, epsilon: float, steps: int, step_size: float | None, beta: float
) -> AdversarialTraining | None:
    """Adversarial training of a recipe, from its parameters; None without an objective."""
    if objective is None:
        return None
    step_size = STEP_SHARE * epsilon if step_size is None else step_size
    return AdversarialTraining(objective, epsilon, steps, step_size, beta)
