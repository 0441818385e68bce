"""The learning rate as a pure function of the step, so that a resumed run cannot drift from it.

Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", ICLR 2017, equation 5
(one cycle), after a linear warm-up as in DeiT (Touvron et al., ICML 2021).
"""

from __future__ import annotations

import math


def cosine_learning_rate(
    step: int, *, steps: int, warmup_steps: int, peak: float, start: float, minimum: float
) -> float:
    """Learning rate of one optimiser step.

    Args:
        step: number of steps done before this one, in [0, steps).
        steps: steps of the whole training.
        warmup_steps: steps of the linear rise from `start` to `peak`, in [0, steps].
        peak: learning rate at step `warmup_steps`.
        start: learning rate at step 0 when there is a warm-up.
        minimum: limit that the cosine reaches at `step == steps`, one past the last step.
    """
    assert 0 <= step < steps, (step, steps)
    assert 0 <= warmup_steps <= steps, (warmup_steps, steps)
    if step < warmup_steps:
        return start + (peak - start) * step / warmup_steps
    turn = math.pi * (step - warmup_steps) / (steps - warmup_steps)
    return minimum + (peak - minimum) * (1 + math.cos(turn)) / 2
