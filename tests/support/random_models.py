"""A classifier under noise, and a plain attack on it, run to its end."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy


class Noisy(nn.Module):
    """A classifier of images under normal noise."""

    def __init__(self, network: nn.Module, deviation: float) -> None:
        super().__init__()
        self.network = network
        self.deviation = deviation

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images + self.deviation * torch.randn_like(images))
        return logits


def to_the_end(model: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> float:
    """Expected accuracy under plain PGD on the mean loss of 20 passes: its last iterate, 400 draws."""
    points = images.clone()
    with torch.random.fork_rng():
        torch.manual_seed(2)
        for _ in range(40):
            points.requires_grad_(True)
            losses = [cross_entropy(model(points), labels, reduction="sum") for _ in range(20)]
            (gradient,) = torch.autograd.grad(torch.stack(losses).sum(), points)
            moved = points.detach() + 0.15 * epsilon * gradient.sign()
            points = (images + (moved - images).clamp(-epsilon, epsilon)).clamp(0, 1)
        with torch.no_grad():
            return float(
                torch.stack([(model(points).argmax(1) == labels).double() for _ in range(400)]).mean()
            )
