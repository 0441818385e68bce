"""Gaussian noise: x + sigma z, with z standard normal in every value (sensor noise in low light).

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations".

    x' = x + sigma z,    z ~ N(0, 1)
    sigma = SIGMAS[severity - 1]
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from assay.attacks.corruptions.imaging.corruption import IMAGENET_C, TOP, Corruption, Draws, Severity, at, cut
from assay.attacks.corruptions.imaging.draws import normal

__all__ = ["gaussian_noise"]

PAPER = IMAGENET_C
FACTS = {"group": "noise", "milliseconds": 0.74}
SIGMAS = (0.08, 0.12, 0.18, 0.26, 0.38)


def gaussian_noise(*, severity: Severity = 1) -> Corruption:
    """Normal noise of the same size in every value.

    Args:
        severity: 1 to 5; standard deviations of 0.08, 0.12, 0.18, 0.26 and 0.38 of the range.

    Raises:
        ValueError: If there is no such severity.
    """
    apply = functools.partial(_apply, sigma=at(severity, SIGMAS))
    return Corruption("gaussian_noise", severity, apply, _draw)


def _draw(generator: torch.Generator, channels: int, height: int, width: int) -> Draws:
    return (normal(generator, channels, height, width),)


def _apply(levels: Tensor, noise: Tensor, *, sigma: float) -> Tensor:
    return cut(torch.add(levels, noise, alpha=TOP * sigma))  # (n, C, H, W)
