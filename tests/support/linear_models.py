"""A linear model of two classes that keeps the points it was asked about."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LinearModel(nn.Module):
    """Logits 0 and w x - offset."""

    def __init__(self, weights: Tensor, offset: float = 5.0) -> None:
        super().__init__()
        self.weights = weights
        self.offset = offset
        self.seen: list[Tensor] = []

    def forward(self, points: Tensor) -> Tensor:
        self.seen.append(points.detach().clone())
        score = points.flatten(1) @ self.weights - self.offset
        return torch.stack([torch.zeros_like(score), score], dim=1)
