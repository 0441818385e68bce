"""Recipe of a training: the frozen values that determine the training loop."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

RAND_AUGMENT = re.compile(r"rand(-(m|n|inc)[0-9]{1,2}|-mstd[0-9]{1,3}(\.[0-9]{1,3})?|-p[01](\.[0-9]{1,3})?)*")

Schedule = Literal[
    "constant", "cosine", "cosine_from_start", "inverse_sqrt", "one_cycle", "one_cycle_linear", "polynomial"
]
Optimiser = Literal["adam", "adamw", "radam", "sgd"]
Selection = Literal["last", "validation", "released_test"]


@dataclass(frozen=True)
class Augmentation:
    """Random changes of the training images; zero (or False) disables a part."""

    shift: float = 0.0  # max translation along each axis, a fraction of the image side, in [0, 1]
    rotate: float = 0.0  # max rotation either way, in degrees, in [0, 180]
    scale: float = 0.0  # max relative change either way, in [0, 1)
    flip: bool = False  # mirror left to right with probability one half
    # of the Beta distribution that mixes examples of a batch (Zhang et al., "mixup", ICLR 2018); 0 is off
    mixup: float = 0.0
    # of the Beta distribution for the area of another example's rectangle (Yun et al., ICCV 2019); 0 is off.
    # With cutmix, mixup has one weight for the batch, and each batch gets one of the two, as in timm
    cutmix: float = 0.0
    smallest_crop: float = 1.0  # min area kept by a random crop, in (0, 1]; 1 does not crop
    rand_augment: str | None = None  # timm's RandAugment policy, such as "rand-m9-mstd0.5-inc1"; None is off
    erase: float = 0.0  # of random erasing, in [0, 1]
    # consecutive visits of an image in an epoch of as many fewer images (Hoffer et al., "Augment your batch",
    # CVPR 2020)
    repeats: int = 1

    def __post_init__(self) -> None:
        _within("shift", self.shift, 0, 1)
        _within("rotate", self.rotate, 0, 180)
        _within("scale", self.scale, 0, 0.99)
        _within("mixup", self.mixup, 0, math.inf)
        _within("cutmix", self.cutmix, 0, math.inf)
        _within("smallest_crop", self.smallest_crop, math.ulp(0), 1)
        _within("erase", self.erase, 0, 1)
        _within("repeats", self.repeats, 1, math.inf)
        if self.uses_timm and max(self.shift, self.rotate, self.scale) > 0:
            raise ValueError("crops, rand_augment and erase do not go with shift, rotate and scale")
        if self.rand_augment is not None and not RAND_AUGMENT.fullmatch(self.rand_augment):
            example = "'rand-m9-mstd0.5-inc1'"
            raise ValueError(
                f"rand_augment is {self.rand_augment!r}; allowed: timm's policies, like {example}"
            )

    @property
    def moves(self) -> bool:
        """Whether any geometric change is on."""
        return self.flip or max(self.shift, self.rotate, self.scale) > 0

    @property
    def uses_timm(self) -> bool:
        """Whether timm augments single images."""
        return self.smallest_crop < 1 or self.rand_augment is not None or self.erase > 0


@dataclass(frozen=True)
class Crops:
    """Random crops of images and label maps at their own size (`augmentation/crops.py`)."""

    size: int  # side in pixels, at least 1; padding is excluded from the loss
    short_side: int | None  # of an image, in pixels, before rescaling; None: the file's
    scales: tuple[float, float]  # min and max random rescaling, above 0
    flip: bool  # mirror left to right with probability one half
    photometric: bool  # random brightness, contrast, saturation and hue

    def __post_init__(self) -> None:
        _within("size", self.size, 1, math.inf)
        if self.short_side is not None:
            _within("short_side", self.short_side, 1, math.inf)
        _within("scales", self.scales[0], math.ulp(0), self.scales[1])
        _within("scales", self.scales[1], self.scales[0], math.inf)


@dataclass(frozen=True)
class AdversarialTraining:
    """Adversarial training with projected gradient ascent in an Linf ball around each image."""

    # "pgd_at" (Madry et al., ICLR 2018): loss of adversarial images; "trades" (Zhang et al., ICML 2019): loss
    # of clean images plus beta times the divergence of the answers
    objective: Literal["pgd_at", "trades"]
    epsilon: float  # radius in pixel units, in (0, 1]
    steps: int  # of the attack, at least 1
    step_size: float  # in pixel units, in (0, 1]
    beta: float = 6.0  # of TRADES' second term, at least 0

    def __post_init__(self) -> None:
        _one_of("objective", self.objective, ("pgd_at", "trades"))
        _within("epsilon", self.epsilon, math.ulp(0), 1)
        _within("steps", self.steps, 1, math.inf)
        _within("step_size", self.step_size, math.ulp(0), 1)
        _within("beta", self.beta, 0, math.inf)

    @property
    def passes(self) -> tuple[int, int]:
        """Forward and backward passes per visit of an image: clean, attack, update."""
        return 1 + self.steps + self.passes_of_update, self.steps + self.passes_of_update

    @property
    def passes_of_update(self) -> int:
        """Passes with a minimised loss: TRADES adds the clean images' pass."""
        return 2 if self.objective == "trades" else 1


@dataclass(frozen=True)
class Recipe:
    """An optimiser, with a learning rate that rises and falls step by step."""

    epochs: int  # over the training set, at least 1; ignored with `steps`
    learning_rate: float  # the peak, at the end of the warm-up
    # batch size of `learning_rate`: the peak is scaled to the training's (Goyal et al., "Accurate, Large
    # Minibatch SGD", 2017); None does not scale
    reference_batch: int | None = None
    # after a linear rise "cosine", "polynomial" (power 0.9), "inverse_sqrt" or "constant";
    # "cosine_from_start", where the rise replaces the beginning; "one_cycle" (halves of cosines) or
    # "one_cycle_linear"
    schedule: Schedule = "cosine"
    by_epoch: bool = False  # the rate changes at the beginning of an epoch only, as in timm
    epochs_late: int = 0  # with `by_epoch`, epochs of lag, at least 0: epoch 0's value is kept longer
    warmup_epochs: float = 0.0  # linear; at most `epochs`
    steps: int | None = None  # optimiser steps in place of epochs; at least 1
    warmup_steps: int | None = None  # in place of `warmup_epochs`; at most `steps`
    warmup_learning_rate: float = 1e-6  # start of the warm-up
    minimum_learning_rate: float = 0.0  # end of the decay
    # decoupled with "adamw" and "radam", in the gradient with "adam" and "sgd"; not of biases,
    # one-dimensional parameters, position embeddings and class tokens, unless `decay_everything`
    weight_decay: float = 0.0
    decay_everything: bool = False  # to all parameters, as fairseq
    optimiser: Optimiser = "adamw"
    momentum: float = 0.9  # SGD's, in [0, 1)
    nesterov: bool = False  # needs momentum above 0
    betas: tuple[float, float] = (0.9, 0.999)  # Adam's, each in [0, 1)
    # of a one-cycle schedule: lowest and highest SGD momentum or first beta, which falls as the rate rises
    # (torch's `OneCycleLR`); None leaves it
    momentum_cycle: tuple[float, float] | None = None
    epsilon: float = 1e-8  # Adam's denominator constant
    label_smoothing: float = 0.0  # in [0, 1)
    clip_norm: float | None = None  # max L2 norm of the gradient; None does not clip
    # max absolute element of the gradient, before `clip_norm`; None does not clip
    clip_value: float | None = None
    # examples per step, by accumulated gradients of smaller batches; None: one batch
    total_batch: int | None = None
    total_tokens: int | None = None  # in tokens, for texts of a common length
    # examples per step of the published training, if results shall say that it was not reached
    published_batch: int | None = None
    published_tokens: int | None = None  # in tokens, for texts of a common length
    # share of the training set, in [0, 0.5], judged after each epoch and not trained on
    validation: float = 0.0
    # saved weights: "last"; "validation", the best on its share; "released_test", the best on the test set,
    # as some released code does
    selection: Selection = "last"
    judged_every: int | None = None  # steps between judgements; None: an epoch
    first_judged: float = 0.0  # share of the steps before selectable weights, in [0, 1)
    # of the weights' exponential moving average per step, in [0, 1); None keeps none. The average is saved in
    # addition to the raw weights
    ema_decay: float | None = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    adversarial: AdversarialTraining | None = None  # on the augmented images
    crops: Crops | None = None  # for segmentation; None trains on whole images at the model's size

    def __post_init__(self) -> None:
        _within("epochs", self.epochs, 1, math.inf)
        _within("learning_rate", self.learning_rate, 0, math.inf)
        _within("warmup_epochs", self.warmup_epochs, 0, self.epochs)
        _within("warmup_learning_rate", self.warmup_learning_rate, 0, math.inf)
        _within("minimum_learning_rate", self.minimum_learning_rate, 0, self.learning_rate)
        _within("weight_decay", self.weight_decay, 0, math.inf)
        _within("label_smoothing", self.label_smoothing, 0, math.nextafter(1, 0))
        _one_of("schedule", self.schedule, get_args(Schedule))
        _one_of("optimiser", self.optimiser, get_args(Optimiser))
        _one_of("selection", self.selection, get_args(Selection))
        _within("momentum", self.momentum, 0, math.nextafter(1, 0))
        _within("epochs_late", self.epochs_late, 0, self.epochs if self.by_epoch else 0)
        if self.steps is not None:
            _within("steps", self.steps, 1, math.inf)
        if self.warmup_steps is not None:
            _within("warmup_steps", self.warmup_steps, 0, self.steps or math.inf)
        if self.reference_batch is not None:
            _within("reference_batch", self.reference_batch, 1, math.inf)
        for name in ("betas", "momentum_cycle"):
            for beta in getattr(self, name) or ():
                _within(name, beta, 0, math.nextafter(1, 0))
        _within("validation", self.validation, 0, 0.5)
        _within("first_judged", self.first_judged, 0, math.nextafter(1, 0))
        self._check_parts()
        if self.ema_decay is not None:
            _within("ema_decay", self.ema_decay, 0, math.nextafter(1, 0))
        self._check_limits()

    def _check_limits(self) -> None:
        for name in ("clip_norm", "clip_value"):
            if (limit := getattr(self, name)) is not None:
                _within(name, limit, math.ulp(0), math.inf)
        for name in ("total_batch", "total_tokens", "published_batch", "published_tokens", "judged_every"):
            if (count := getattr(self, name)) is not None:
                _within(name, count, 1, math.inf)

    def _check_parts(self) -> None:
        if self.total_batch is not None and self.total_tokens is not None:
            raise ValueError("total_batch and total_tokens both state the size of a step; give one of them")
        if self.by_epoch and (self.steps is not None or self.schedule.startswith("one_cycle")):
            raise ValueError("by_epoch is for schedules over epochs: neither steps nor one_cycle go with it")
        if self.nesterov and (self.optimiser != "sgd" or self.momentum == 0):
            raise ValueError("nesterov is for the optimiser 'sgd' with a momentum above 0")
        if self.momentum_cycle is not None and not self.schedule.startswith("one_cycle"):
            raise ValueError(f"momentum_cycle goes with one_cycle schedules, not with {self.schedule!r}")
        if self.selection == "validation" and self.validation == 0:
            raise ValueError("selection is 'validation', but validation is 0: give it a share above 0")
        if self.selection == "released_test" and self.validation > 0:
            raise ValueError("selection is 'released_test': validation must be 0, as only one set is judged")

    def step_examples(self, batch_size: int, length: int) -> int:
        """Examples per optimiser step."""
        if self.total_tokens is not None:
            return max(1, self.total_tokens // length)
        return batch_size if self.total_batch is None else self.total_batch

    def published_examples(self, length: int) -> int | None:
        """Examples per step of the published training, of so many tokens; None: not stated."""
        tokens = self.published_tokens
        return self.published_batch if tokens is None else max(1, tokens // length)

    def warmup_length(self, steps_per_epoch: int) -> int:
        """Steps of the warm-up."""
        own = self.warmup_steps
        return round(self.warmup_epochs * steps_per_epoch) if own is None else own

    def peak_learning_rate(self, batch_size: int) -> float:
        """Peak for batches of the given size."""
        share = 1.0 if self.reference_batch is None else batch_size / self.reference_batch
        return self.learning_rate * share


def _within(name: str, value: float, low: float, high: float) -> None:
    if not (math.isfinite(value) and low <= value <= high):
        raise ValueError(f"{name} is {value!r}; allowed: a finite number from {low:g} to {high:g}")


def _one_of(name: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
