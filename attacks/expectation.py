"""Expectation over transformation: attacks on models that answer at random, and what counts under them.

Athalye et al. 2018, "Obfuscated Gradients Give a False Sense of Security", section 4: with t the draws of the
model, an attack raises the mean of its loss over them,

    losses    E_t L(f_t(x), y)         the mean of the losses, whose gradient is the mean of the gradients
    logits    L(E_t f_t(x), y)         the loss of the mean logits

estimated from `passes` passes at each iterate. In the judgement `expected` nothing ends an attack early, the
iterate that counts is the one with the lowest share of right answers among its passes (at equal shares with
the highest objective), and accuracy is the expected one, over fresh draws (`engine/expected_accuracy.py`). In
`single_draw`, the rule of the published codes, one wrong answer breaks an example.

P passes, B batch, K classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from assay.attacks.judgement import right

Average = Literal["losses", "logits"]
Judgement = Literal["expected", "single_draw"]

# Rules and passes of attacks with the parameters `eot`, `judgement` and `model_draws`.
EXPECTED = "params.eot > 1 and params.judgement == 'expected'"
# Two sets of draws of the unattacked image and two of the attacked one; last iterates are asked as often.
JUDGING = f"4 * params.model_draws * ({EXPECTED})"
LAST = f"params.restarts * (params.eot - 1) * ({EXPECTED})"
NATIVE_ONLY = (
    f"params.backend == 'native' or not ({EXPECTED})",
    "judgement expected needs backend 'native'; libraries judge single draws: judgement 'single_draw'",
)
PIXEL_ONLY = (
    f"job.protocol == 'pixel' or not ({EXPECTED})",
    "protocol paper judges the final iterate in a single draw: judgement 'single_draw'",
)


@dataclass(frozen=True)
class Expectation:
    """How often a model is asked at each iterate, and what counts."""

    passes: int = 1  # Passes at each iterate
    average: Average = "losses"  # What is averaged over them
    judgement: Judgement = "expected"  # What counts; with a single pass always the single draw
    draws: int = 100  # Fresh draws of the model from which expected accuracy is estimated

    def __post_init__(self) -> None:
        if self.passes < 1:
            raise ValueError(f"eot is {self.passes}, it must be at least 1")
        if self.draws < 1:
            raise ValueError(f"model_draws is {self.draws}, it must be at least 1")
        if self.average not in get_args(Average):
            raise ValueError(f"eot_average is {self.average!r}, allowed are {', '.join(get_args(Average))}")
        if self.judgement not in get_args(Judgement):
            raise ValueError(f"judgement is {self.judgement!r}, allowed are {', '.join(get_args(Judgement))}")

    @property
    def expected(self) -> bool:
        """Whether the answers of several passes count, not a single answer."""
        return self.passes > 1 and self.judgement == "expected"


SINGLE = Expectation()


def share_right(drawn: Tensor, truth: Tensor) -> Tensor:
    """Share of the passes whose answer is right, from logits (P, B, K) and classes (B,); float64 (B,)."""
    return torch.stack([right(logits, truth) for logits in drawn]).double().mean(0)


def lower(accuracy: Tensor, values: Tensor, lowest: Tensor, highest: Tensor) -> Tensor:
    """Which iterates count more than those before: fewer right answers, or as many and a higher objective.

    All are (B,): share of right answers and objective at each iterate, and at those that count so far; NaN in
    `lowest` is before the first, NaN in `highest` below everything.
    """
    return ~(accuracy > lowest) & ~((accuracy == lowest) & (values <= highest))
