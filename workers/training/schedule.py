"""Learning rate schedules as pure functions of the step, so that a resumed run cannot drift.

All of them have the same arguments:

    step          number of steps (or epochs) done before this one, in [0, steps)
    steps         steps (or epochs) of the whole training
    warmup_steps  length of the rise from `start` to `peak`, in [0, steps]
    peak          the highest learning rate
    start         learning rate of step 0, when there is a warm-up
    minimum       end of the decay
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from assay.workers.training.recipe import Recipe

POWER = 0.9  # Chen et al., "DeepLab", TPAMI 2018, section 4.2, and Segmenter (Strudel et al., ICCV 2021).


def cosine_learning_rate(
    step: int, *, steps: int, warmup_steps: float, peak: float, start: float, minimum: float
) -> float:
    """Cosine decay after a linear rise; the minimum is reached one past the last step.

    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, equation 5 (one
    cycle); the warm-up as in DeiT (Touvron et al., ICML 2021), but step by step.
    """
    _check(step, steps, warmup_steps)
    if step < warmup_steps:
        return start + (peak - start) * step / warmup_steps
    turn = math.pi * (step - warmup_steps) / (steps - warmup_steps)
    return minimum + (peak - minimum) * (1 + math.cos(turn)) / 2


def cosine_from_start_learning_rate(
    step: int, *, steps: int, warmup_steps: float, peak: float, start: float, minimum: float
) -> float:
    """Cosine decay over the whole training, whose beginning a linear rise replaces.

    So timm's `CosineLRScheduler` and the language models of lmtool-fwp. The minimum is reached one past the
    last step.
    """
    _check(step, steps, warmup_steps)
    if step < warmup_steps:
        return start + (peak - start) * step / warmup_steps
    return minimum + (peak - minimum) * (1 + math.cos(math.pi * step / steps)) / 2


def polynomial_learning_rate(
    step: int, *, steps: int, warmup_steps: float, peak: float, start: float, minimum: float
) -> float:
    """Decay as (1 - t)^0.9 after a linear rise, with t from 0 to 1 one past the last step."""
    _check(step, steps, warmup_steps)
    if step < warmup_steps:
        return start + (peak - start) * step / warmup_steps
    left = (steps - step) / (steps - warmup_steps)
    return minimum + (peak - minimum) * math.pow(left, POWER)


def constant_learning_rate(
    step: int, *, steps: int, warmup_steps: float, peak: float, start: float, minimum: float
) -> float:
    """The peak, after a linear rise; the minimum plays no part."""
    del minimum
    _check(step, steps, warmup_steps)
    return start + (peak - start) * step / warmup_steps if step < warmup_steps else peak


def inverse_sqrt_learning_rate(
    step: int, *, steps: int, warmup_steps: float, peak: float, start: float, minimum: float
) -> float:
    """Decay with the inverse square root of the step, after a linear rise; never below the minimum.

    Vaswani et al., "Attention Is All You Need", 2017, section 5.3, with fairseq's numbers: the peak is at
    step `warmup_steps`, without a warm-up at steps 0 and 1.
    """
    _check(step, steps, warmup_steps)
    if step < warmup_steps:
        return start + (peak - start) * step / warmup_steps
    return max(minimum, peak * math.sqrt(max(warmup_steps, 1) / max(step, 1)))


def one_cycle_learning_rate(
    step: int,
    *,
    steps: int,
    warmup_steps: int,
    peak: float,
    start: float,
    minimum: float,
    anneal: Callable[[float, float, float], float],
) -> float:
    """One cycle: up to the peak at the last step of the warm-up, down to the minimum at the last step.

    Smith and Topin, "Super-Convergence", 2018, with the numbers of torch's `OneCycleLR`. Momentum moves the
    other way with its lowest value as "peak". `anneal` goes from its first value to its second as the third
    goes from 0 to 1.
    """
    _check(step, steps, warmup_steps)
    top = warmup_steps - 1
    if step < top:
        return anneal(start, peak, step / top)
    return peak if step == top else anneal(peak, minimum, (step - top) / (steps - 1 - top))


def _cosine(first: float, last: float, share: float) -> float:
    return last + (first - last) / 2 * (1 + math.cos(math.pi * share))


def _line(first: float, last: float, share: float) -> float:
    return first + (last - first) * share


def _check(step: int, steps: int, warmup_steps: float) -> None:
    assert 0 <= step < steps, (step, steps)
    assert 0 <= warmup_steps <= steps, (warmup_steps, steps)


SCHEDULES: dict[str, Callable[..., float]] = {
    "constant": constant_learning_rate,
    "cosine": cosine_learning_rate,
    "cosine_from_start": cosine_from_start_learning_rate,
    "inverse_sqrt": inverse_sqrt_learning_rate,
    "one_cycle": partial(one_cycle_learning_rate, anneal=_cosine),
    "one_cycle_linear": partial(one_cycle_learning_rate, anneal=_line),
    "polynomial": polynomial_learning_rate,
}


def learning_rate(
    recipe: Recipe, step: int, *, steps: int, per_epoch: int, warmup_steps: int, peak: float
) -> float:
    """Learning rate of a step in [0, steps) of a recipe's training."""
    warmup = float(warmup_steps)
    if recipe.by_epoch:
        step = max(step // per_epoch - recipe.epochs_late, 0)
        steps, warmup = recipe.epochs, recipe.warmup_epochs
    return SCHEDULES[recipe.schedule](
        step,
        steps=steps,
        warmup_steps=warmup,
        peak=peak,
        start=min(recipe.warmup_learning_rate, peak),
        minimum=min(recipe.minimum_learning_rate, peak),
    )
