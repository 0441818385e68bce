"""Weights for tests of networks that start with ones and zeros where a mistake would not show."""

from __future__ import annotations

import torch
from torch import nn


def disturb(module: nn.Module, seed: int = 0) -> None:
    """Add noise to every parameter, and give batch normalisation statistics of some data."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.2)
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                assert part.running_mean is not None
                assert part.running_var is not None
                part.running_mean += 0.3 * torch.randn(part.running_mean.shape, generator=generator)
                part.running_var *= 0.5 + torch.rand(part.running_var.shape, generator=generator)
