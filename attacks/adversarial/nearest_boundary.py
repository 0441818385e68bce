"""The nearest of a classifier's linearised decision boundaries.

Croce and Hein 2020 (FAB), equation 7: with f_k = z_k - z_label and 1/p + 1/q = 1, the boundary to the class

    s = argmin over k != label of  |f_k(x)| / |grad f_k(x)|_q

One backward pass for each class; only the nearest boundary is kept, not a gradient for every class.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.kernel import Forward
from assay.attacks.threat import Norm, as_column

TINY = 1e-12


def nearest_boundary(
    model: Forward, points: Tensor, labels: Tensor, norm: Norm
) -> tuple[Tensor, Tensor, int]:
    """Linearises a model around points.

    Args:
        model: The attacked model; in parts where it says that memory asks for it.
        points: (B, C, H, W).
        labels: The classes to get away from, (B,).
        norm: Norm of distances.

    Returns:
        f_s (B,), its gradient like the points, and the number of classes. Where no class has a finite
        distance, both are zero.
    """
    in_parts = getattr(model, "in_parts", None)

    def part(rows: Tensor) -> tuple[Tensor, Tensor, int]:
        return _nearest(model, points[rows], labels[rows], norm)

    rows = torch.arange(len(points), device=points.device)
    parts: list[tuple[Tensor, Tensor, int]] = [part(rows)] if in_parts is None else in_parts(rows, part)
    return torch.cat([one[0] for one in parts]), torch.cat([one[1] for one in parts]), parts[0][2]


def _nearest(model: Forward, points: Tensor, labels: Tensor, norm: Norm) -> tuple[Tensor, Tensor, int]:
    points = points.detach().requires_grad_(True)
    with torch.enable_grad():
        logits = model(points)
    classes = logits.shape[1]
    least = torch.full_like(logits[:, 0], torch.inf)
    offset, weights = torch.zeros_like(least), torch.zeros_like(points)
    for other in range(classes):
        with torch.enable_grad():
            values = logits[:, other] - logits.gather(1, labels[:, None]).squeeze(1)
            (gradient,) = torch.autograd.grad(values.sum(), points, retain_graph=other < classes - 1)
        values = values.detach()
        distance = values.abs() / (TINY + _dual(gradient, norm))
        closer = (distance < least) & (labels != other)
        least = torch.where(closer, distance, least)
        offset = torch.where(closer, values, offset)
        weights = torch.where(as_column(closer, points), gradient, weights)
    return offset, weights, classes


def _dual(gradient: Tensor, norm: Norm) -> Tensor:
    flat = gradient.flatten(1)
    return flat.abs().sum(1) if norm == "Linf" else flat.square().sum(1).sqrt()
