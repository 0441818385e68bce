"""Targets in the order of their distance in a linear model: mesoscopic almost linearity targeting (MALT).

Melamed, Yehudai and Shamir 2024, "MALT Powers Up Adversarial Attacks" (arXiv 2407.02240), algorithm 1. Were
the network linear, with the logits z at the unattacked image x and the label y, the class t would be reached
at the distance

    d_t = (z_y - z_t) / |grad_x (z_t - z_y)|_q,      q = 1 in Linf, 2 in L2, inf in L1

and the class with the smallest distance comes first. One forward pass gives all logits; each candidate costs
a backward pass. Deviation from the authors' code: a class with a zero or non-finite gradient comes last
(there: first).

B batch, T candidates.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assay.attacks.adversarial.kernels.losses import targeted_margin
from assay.attacks.kernel import Forward
from assay.attacks.threat import DUAL, BallNorm, sizes


def linear_distances(
    model: Forward, images: Tensor, labels: Tensor, candidates: Tensor, norm: BallNorm
) -> Tensor:
    """Distance of each candidate class in the linear model at the images, (B, T); one forward, T backward.

    `norm` is the ball's; slopes are in its dual. Labels are (B,), candidates other classes (B, T).
    """
    in_parts = getattr(model, "in_parts", None)

    def part(chosen: Tensor) -> Tensor:
        own, others, columns = labels[chosen], candidates[chosen], []
        with torch.enable_grad():
            points = images[chosen].detach().requires_grad_(True)
            logits = model(points)
            for place, target in enumerate(others.unbind(1)):
                gap = targeted_margin(logits, own, target)
                again = place + 1 < others.shape[1]
                (gradient,) = torch.autograd.grad(gap.sum(), points, retain_graph=again)
                slope = sizes(gradient, DUAL[norm])
                distance = -gap.detach() / slope
                usable = (slope > 0) & distance.isfinite()
                columns.append(torch.where(usable, distance, torch.inf))
        return torch.stack(columns, dim=1)

    rows = torch.arange(len(images), device=images.device)
    parts: list[Tensor] = [part(rows)] if in_parts is None else in_parts(rows, part)
    return torch.cat(parts)


def nearest_first(candidates: Tensor, distances: Tensor, count: int) -> Tensor:
    """The candidates (B, T) with the smallest distances, nearest first, (B, count); ties keep their order."""
    return candidates.gather(1, distances.argsort(dim=1, stable=True))[:, :count]
