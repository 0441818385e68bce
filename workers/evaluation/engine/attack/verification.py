"""Verification: every adversarial example that counts is judged again, from the stored image.

Low precision, a defect of an attack, or outputs that change from run to run or with the batch can then only
make an attack miss examples, never invent them. Source: Carlini et al. 2019, "On Evaluating Adversarial
Robustness", section 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from assay.attacks.judgement import Verdict, judge, wrong_by
from assay.attacks.kernel import Forward, State, concatenate, select
from assay.attacks.threat import Ball, Box, sizes

# Tolerance of norms for float32 rounding.
ABSOLUTE, RELATIVE = 1e-6, 1e-5
# A refused success is followed by a demand of at least so many roundings of the largest logit.
ROUNDINGS = 4
REASONS = ("unverified", "out_of_ball", "out_of_box")


class Checked(NamedTuple):
    """Adversarial examples after their second judgement."""

    state: State  # the slots, with the attack's own outcomes, or where it gave none, with those found here
    holds: Tensor  # which of them count, on the CPU, (B,)
    right: Tensor  # those judged here for the first time and found right, on the CPU, (B,)
    # Whether the image rounded to 8 bits is right where it counts, on the CPU, (B,); None if not requested
    correct8: Tensor | None
    # Which do not count, by reason of REASONS, on the CPU, (B,); one may have several
    reasons: dict[str, Tensor]
    # By how much the lead of the highest wrong logit fell from the attack to here, float64 (B,)
    discrepancy: Tensor


@dataclass(eq=False)
class Verification:
    """Collects adversarial examples and checks a batch at a time."""

    model: Forward  # in float32 (or float64), without autocast
    ball: Ball | None  # None where an attack searches for the smallest perturbation
    box: Box | None
    size: int  # of a batch
    eight_bit: bool = False  # judges the images rounded to 8 bits as well

    def __post_init__(self) -> None:
        self._held: list[State] = []

    def add(self, found: State) -> None:
        """Takes slots whose image that counts was misclassified, or not judged; never some of each."""
        self._held.append(found)

    def checked(self, *, all_of_them: bool = False) -> Checked | None:
        """Removes and returns the next batch; None when there are too few, or none."""
        held = sum(len(state["row"]) for state in self._held)
        if held == 0 or (held < self.size and not all_of_them):
            return None
        state = concatenate(self._held)
        batch, rest = (
            select(state, torch.arange(held)[part]) for part in (slice(self.size), slice(self.size, None))
        )
        self._held = [rest] if len(rest["row"]) else []
        return self._check(batch)

    def _check(self, state: State) -> Checked:
        images = state["best"]
        logits = self.model(images)
        verdict = judge(logits, state["truth"])
        right = verdict.rank == 0
        bad = {
            "unverified": right,
            "out_of_ball": out_of_ball(images - state["images"], self.ball),
            "out_of_box": out_of_box(images, self.box),
        }
        lead, found = wrong_by(logits, state["truth"]), wrong_by(state["logits"], state["truth"])
        if "unjudged" in state:
            state |= verdict._asdict() | {"logits": logits}
            bad = {reason: which & ~right for reason, which in bad.items()}
        if "astray" in state:
            hit = (state["prediction"] == state["goal"]) & (verdict.prediction == state["goal"])
            state |= {"hit": hit}
        holds = ~(torch.stack(list(bad.values())).any(0) | right)
        correct8 = self._right_in_8_bit(state, holds) if self.eight_bit else None
        unjudged = right if "unjudged" in state else torch.zeros_like(right)
        reasons = {reason: which.cpu() for reason, which in bad.items()}
        return Checked(state, holds.cpu(), unjudged.cpu(), correct8, reasons, (found - lead).cpu())

    def _right_in_8_bit(self, state: State, holds: Tensor) -> Tensor:
        correct = torch.ones_like(holds)
        if holds.any():
            rounded = (state["best"][holds] * 255).round() / 255
            correct[holds] = judge(self.model(rounded), state["truth"][holds]).rank == 0
        return correct.cpu()


def resume(state: State, discrepancy: Tensor) -> State:
    """Slots whose success was refused, as they go on: with a demand, and no passes that were counted before.

    `discrepancy` is by how much the difference of the logits, `wrong_by`, fell in the second judgement,
    float64 (B,), on the CPU.
    """
    rounding = ROUNDINGS * torch.finfo(state["logits"].dtype).eps * state["logits"].abs().amax(1).double()
    discrepancy = discrepancy.to(rounding.device)
    least = torch.maximum(discrepancy.nan_to_num(0.0, 0.0, 0.0), rounding.nan_to_num(0.0, 0.0, 0.0))
    judgement = {*Verdict._fields, "hit"}
    kept = {key: values for key, values in state.items() if key not in judgement}
    if "astray" in state:
        kept["astray"] = torch.zeros_like(state["astray"])
    return kept | {
        "broken": torch.zeros_like(state["broken"]),
        "demand": 2 * torch.maximum(least, state["demand"]),
        "refused": state["refused"] + 1,
        "forward": torch.zeros_like(state["forward"]),
        "backward": torch.zeros_like(state["backward"]),
    }


def out_of_ball(perturbation: Tensor, ball: Ball | None) -> Tensor:
    """Which perturbations (B, ...) are larger than the ball by more than rounding, bool (B,)."""
    if ball is None:
        return torch.zeros(len(perturbation), dtype=torch.bool, device=perturbation.device)
    return ~(sizes(perturbation, ball.norm) <= ball.epsilon * (1 + RELATIVE) + ABSOLUTE)


def out_of_box(images: Tensor, box: Box | None) -> Tensor:
    """Which images (B, ...) have values outside the box by more than rounding, bool (B,)."""
    flat = images.flatten(1)
    if box is None:
        return torch.zeros(len(images), dtype=torch.bool, device=images.device)
    low, high = box
    return ~((flat.amin(1) >= low - ABSOLUTE) & (flat.amax(1) <= high + ABSOLUTE))
