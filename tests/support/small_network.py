"""A small network of images, and a gradient of its passes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from assay.workers.evaluation.engine.forward import Passes


class SmallNetwork(nn.Module):
    """In evaluation mode, from (B, 3, 4, 4) to (B, 5); `between` is called on its hidden values."""

    def __init__(self, between: Callable[[Tensor], Tensor] = torch.relu, depth: int = 1) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 4, 5)
        self.between, self.depth = between, depth
        self.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.first(images)
        for _ in range(self.depth):
            hidden = torch.tanh(hidden)
        return self.last(self.between(hidden).flatten(1))  # type: ignore[no-any-return]


def differentiated(passes: Passes, images: Tensor) -> tuple[Tensor, Tensor]:
    """The logits, and the gradient of the sum of their squares by the images."""
    with torch.enable_grad():
        points = images.detach().requires_grad_(True)
        logits = passes(points)
        return logits.detach(), torch.autograd.grad(logits.square().sum(), points)[0]
