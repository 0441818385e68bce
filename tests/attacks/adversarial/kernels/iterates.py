"""A step's setting, state and findings for attacks that minimise the perturbation."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.minimum_norm import Iterate
from assay.attacks.kernel import Setting
from assay.attacks.randomness import Randomness


def step_of(state: dict[str, Tensor]) -> tuple[Setting, Any, Iterate]:
    """A setting, a copy of a state with an image at its first step, and what that step found."""
    drawn = torch.Generator().manual_seed(0)
    images = torch.rand(4, 1, 3, 3, generator=drawn, dtype=torch.float64)
    gradient = torch.randn(images.shape, generator=drawn, dtype=torch.float64)
    ones = torch.ones(4, dtype=torch.float64)
    whole = {"images": images, "adversarial": images + 0.01 * gradient, "iteration": torch.ones(4).long()}
    return (
        Setting(list("abcd"), Randomness(0, "any")),
        whole | {key: value.clone() for key, value in state.items()},
        Iterate(ones, gradient, ones, torch.tensor([True, False, True, False])),
    )
