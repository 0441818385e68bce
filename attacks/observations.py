"""Perturbed observations of a policy: noise, and a gradient attack on the action.

The threat is from Huang et al. 2017, "Adversarial Attacks on Neural Network Policies", and Zhang et al. 2020,
"Robust Deep Reinforcement Learning against Adversarial Perturbations on State Observations": the environment
goes on as it is, the policy sees it changed. Perturbations are in standard deviations of each number. The
attack is projected gradient ascent (Madry et al., ICLR 2018) in an Linf ball, white box, from a uniform
start, on

    discrete     cross-entropy of the action that the policy takes at the true observation
    continuous   squared distance of the action from the one at the true observation

and the best of all its iterates counts, the start included. It looks one action ahead: what is found is an
upper bound on the return under stronger attacks, which plan.

B = episodes, S = numbers of an observation, A = discrete actions, or numbers of a continuous one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from assay.attacks.randomness import Randomness

Answers = Callable[[Tensor], Tensor]
"""A policy at one step: perturbations (B, S) to logits or actions (B, A); a row depends on its own alone."""


def uniform(draws: Randomness, ids: Sequence[str], step: int, size: int, epsilon: float) -> Tensor:
    """Uniform noise in [-epsilon, epsilon], float64 (B, S), keyed by episode and step."""
    drawn = draws.uniform(ids, (size,), step=step, purpose="noise", dtype=torch.float64)
    return epsilon * (2.0 * drawn - 1.0)


def gaussian(draws: Randomness, ids: Sequence[str], step: int, size: int, epsilon: float) -> Tensor:
    """Normal noise with standard deviation epsilon, without a bound, float64 (B, S), keyed likewise."""
    return epsilon * draws.normal(ids, (size,), step=step, purpose="noise", dtype=torch.float64)


def deviation(answers: Tensor, clean: Tensor, *, discrete: bool) -> Tensor:
    """What the attack raises, (B,), of answers and of those at the true observation, (B, A) each."""
    if discrete:
        return functional.cross_entropy(answers, clean.argmax(dim=1), reduction="none")
    return (answers - clean).square().sum(dim=1)


def ascend(
    answers: Answers,
    clean: Tensor,
    start: Tensor,
    *,
    epsilon: float,
    steps: int,
    step_size: float,
    discrete: bool,
) -> Tensor:
    """Perturbations that change the action most, of all iterates of projected gradient ascent.

    A row whose gradient is not finite stays where it is, and a deviation that is not finite never counts as
    better. The policy is called `steps` + 1 times, `steps` times with gradients; `clean` are its answers at
    the true observations, (B, A), logits if `discrete`; `start` (B, S) is in the Linf ball.
    """
    point, best = start, start
    value = torch.full((len(start),), -torch.inf, dtype=start.dtype, device=start.device)
    for number in range(steps + 1):
        found, gradient = _evaluated(answers, clean, point, discrete=discrete, last=number == steps)
        better = found > value
        best = torch.where(better[:, None], point, best)
        value = torch.where(better, found, value)
        moved = point + step_size * gradient.nan_to_num(0.0, 0.0, 0.0).sign()
        point = moved.clamp(-epsilon, epsilon)
    return best


def _evaluated(
    answers: Answers, clean: Tensor, point: Tensor, *, discrete: bool, last: bool
) -> tuple[Tensor, Tensor]:
    """Deviations (B,) at a point, and their gradients (B, S): zeros at the last, which are not needed."""
    with torch.set_grad_enabled(not last):
        point = point.detach().requires_grad_(not last)
        found = deviation(answers(point), clean, discrete=discrete)
        gradient = torch.zeros_like(point) if last else torch.autograd.grad(found.sum(), point)[0]
    return found.detach(), gradient.detach()
