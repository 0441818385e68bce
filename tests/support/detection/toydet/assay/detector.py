"""Outputs of a detector on a grid: their loss, and the boxes that they claim.

B images, G x G cells, K classes, T most boxes of an image, S side of the images. Outputs (B, (K + 5) G^2) are
for each cell the logits of K classes and of "no box", then x, y, w and h, of which a box has

    centre = (column + sigmoid(x), row + sigmoid(y)) S / G        width, height = exp(w) S / G, exp(h) S / G

as in Redmon and Farhadi 2017, "YOLO9000", section 2, with one square prior a cell. Truth (B, T, 5) is the
class, left, top, right and bottom of each box; the class is -1 where an image has fewer.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from toydet.assay.boxes import Detection, suppressed

NUMBERS = 5  # of a cell beside the logits of classes
BOX_WEIGHT = 2.0
LOWEST = 0.05  # Detections with a smaller score are left out.
DECIMALS = 4  # of scores: rounding of the arithmetic, which batches change, orders no detections


class Cells(NamedTuple):
    """The outputs by cell."""

    logits: Tensor  # (B, G^2, K + 1)
    numbers: Tensor  # (B, G^2, 4)
    grid: int


def cells_of(outputs: Tensor, classes: int) -> Cells:
    """The outputs (B, (K + 5) G^2) by cell."""
    by_cell = outputs.view(len(outputs), classes + NUMBERS, -1).transpose(1, 2)
    return Cells(by_cell[..., : classes + 1], by_cell[..., classes + 1 :], math.isqrt(by_cell.shape[1]))


def detector_loss(outputs: Tensor, truth: Tensor, classes: int, size: int) -> Tensor:
    """Cross-entropy summed over cells, and twice the smooth L1 distance of the boxes, (B,)."""
    logits, numbers, grid = cells_of(outputs, classes)
    truth, cell = truth.to(outputs), size / grid
    known = truth[..., 0] >= 0  # (B, T)
    centres = (truth[..., 1:3] + truth[..., 3:5]) / (2 * cell)
    corner = centres.floor().clamp(0, grid - 1)
    place = (corner[..., 1] * grid + corner[..., 0]).long()
    # Padding goes to one cell more.
    wanted = torch.full((len(truth), grid**2 + 1), classes, dtype=torch.int64, device=outputs.device)
    wanted.scatter_(1, place.masked_fill(~known, grid**2), truth[..., 0].long().clamp(min=0))
    entropy = functional.cross_entropy(logits.transpose(1, 2), wanted[:, :-1], reduction="none").sum(1)
    claimed = numbers.gather(1, place[..., None].expand(-1, -1, 4))
    claimed = torch.cat([claimed[..., :2].sigmoid(), claimed[..., 2:]], 2)
    sides = ((truth[..., 3:5] - truth[..., 1:3]) / cell).clamp(min=1e-3).log()
    distance = functional.smooth_l1_loss(
        claimed, torch.cat([centres - corner, sides], 2), beta=0.1, reduction="none"
    )
    return entropy + BOX_WEIGHT * (distance.sum(2) * known).sum(1)


def detections_of(outputs: Tensor, classes: int, size: int) -> list[list[Detection] | None]:
    """What each image's outputs claim, by falling score, (B,); None where an output is not finite."""
    logits, numbers, grid = cells_of(outputs.detach().double().cpu(), classes)
    scores, labels = logits.softmax(2)[..., :-1].max(2)
    places = torch.arange(grid**2)
    corner = torch.stack([places % grid, places // grid], 1)
    centres = (corner + numbers[..., :2].sigmoid()) * size / grid
    half = numbers[..., 2:].clamp(max=math.log(grid)).exp() * size / grid / 2
    boxes = torch.cat([centres - half, centres + half], 2).clamp(0, size)
    finite = outputs.isfinite().all(1).tolist()
    rows = zip(scores.tolist(), labels.tolist(), boxes.tolist(), strict=True)
    return [_claimed(*row) if known else None for known, row in zip(finite, rows, strict=True)]


def _claimed(scores: list[float], labels: list[int], boxes: list[list[float]]) -> list[Detection]:
    cells = zip(labels, scores, boxes, strict=True)
    return suppressed(
        [Detection(label, round(score, DECIMALS), box) for label, score, box in cells if score >= LOWEST]
    )
