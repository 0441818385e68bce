"""Sigma-zero's steps against a plain loop over its formulas, with autograd's gradient."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.sigma_zero import SigmaZero
from assay.attacks.adversarial.kernels.targeting import Goal
from assay.attacks.kernel import Examples, Setting, State
from assay.attacks.randomness import Randomness
from assay.attacks.threat import sizes

WEIGHTS = torch.tensor([2.0, -1.0, 0.5, 0.25, -3.0, 0.1], dtype=torch.float64)
IMAGE = torch.tensor([0.3, 0.6, 0.5, 0.9, 0.4, 0.2], dtype=torch.float64).view(1, 1, 2, 3)
STEPS = 25


def model(points: Tensor) -> Tensor:
    """Logits 0 and a smooth function of the weighted sum, which grows with it."""
    score = (points.flatten(1) @ WEIGHTS + 0.9).tanh() - 0.4
    return torch.stack([torch.zeros_like(score), score], dim=1)


def attack(**parameters: Any) -> SigmaZero:
    return SigmaZero("sigma_zero", "L0", Goal(), STEPS, **parameters)


def begun(kernel: SigmaZero) -> tuple[Setting, State]:
    setting = Setting(["a"], Randomness(0, "sigma_zero"))
    labels = torch.zeros(1, dtype=torch.int64)
    return setting, kernel.start(setting, Examples(torch.arange(1), IMAGE, labels, labels, model(IMAGE)))


def falling(step: int) -> float:
    """From 1 to a tenth along a cosine."""
    return 0.1 + 0.9 * (1 + math.cos(math.pi * step / STEPS)) / 2


@pytest.mark.parametrize("step_size", [1.0, 0.3])
def test_iterates_are_the_algorithms(step_size: float) -> None:
    sigma, threshold = 1e-3, 0.3
    kernel = attack(step_size=step_size, sigma=sigma, threshold=threshold)
    setting, state = begun(kernel)
    change = torch.zeros_like(IMAGE)
    first, second = torch.zeros_like(IMAGE), torch.zeros_like(IMAGE)
    outcomes = set()
    for step in range(STEPS - 1):
        torch.testing.assert_close(state["adversarial"], IMAGE + change, rtol=0, atol=1e-9)
        with torch.enable_grad():
            moving = change.clone().requires_grad_(True)
            logits = model(IMAGE + moving)
            hinge = (logits[:, 0] - logits[:, 1]).clamp(min=0).sum()
            count = (moving.square() / (moving.square() + sigma)).sum() / moving.numel()
            (gradient,) = torch.autograd.grad(hinge + count, moving)
        gradient = gradient / gradient.abs().max()
        first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
        adam = first / (1 - 0.9 ** (step + 1)) / ((second / (1 - 0.999 ** (step + 1))).sqrt() + 1e-8)
        # The step size's schedule is a step behind the threshold's.
        change = (IMAGE + change - step_size * falling(max(step - 1, 0)) * adam).clamp(0, 1) - IMAGE
        success = bool(logits[0, 1] > logits[0, 0])
        outcomes.add(success)
        threshold += (1 if success else -1) * 0.01 * step_size * falling(step)
        change = torch.where(change.abs() < threshold, 0, change)
        with torch.no_grad():
            kernel.step(setting, model, state)
        assert state["threshold"].item() == pytest.approx(threshold, abs=1e-9)
    assert outcomes == {True, False}, "otherwise this tests half of the rule"


def test_it_finds_the_fewest_values() -> None:
    """The boundary is at a sum 0.476 above the image's: the last weight alone gets there."""
    kernel = attack(step_size=1.0)
    setting, state = begun(kernel)
    with torch.no_grad():
        while not state["done"].all():
            kernel.step(setting, model, state)
    assert model(state["best"]).argmax(1).item() == 1
    assert sizes(state["best"] - IMAGE, "L0").item() == 1


@pytest.mark.parametrize(("threshold", "success", "expected"), [(0.999, True, 1.0), (0.001, False, 0.0)])
def test_the_threshold_stays_between_0_and_1(threshold: float, success: bool, expected: float) -> None:
    kernel = attack(threshold=threshold)
    setting, state = begun(kernel)

    def answer(points: Tensor) -> Tensor:
        logits = model(points)
        return logits + torch.tensor([0.0, 5.0 if success else -5.0], dtype=points.dtype)

    with torch.no_grad():
        kernel.step(setting, answer, state)
    assert state["threshold"].item() == expected
