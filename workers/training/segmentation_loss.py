"""Segmentation loss: cross-entropy of the labelled pixels."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from assay.workers.data.formats.segmentation import IGNORE


def pixel_loss(
    logits: Tensor, maps: Tensor, label_smoothing: float, pixels: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of the labelled pixels, of logits (B, K, H, W) and maps, int64 (B, H, W).

    Maps have classes or IGNORE; label smoothing is in [0, 1). `pixels` is the number of labelled pixels of
    the batch that these maps are a part of; None: they are all. Returns mean loss over the labelled pixels (0
    if none), the number of correct ones, and their number. A part of a batch gets its share of the mean over
    all pixels.
    """
    # One row per pixel: torch's 2D loss has no deterministic GPU kernel.
    rows, truth = logits.movedim(1, -1).flatten(0, -2), maps.flatten()  # (B * H * W, K), (B * H * W,)
    judged = (truth != IGNORE).sum()
    total = functional.cross_entropy(
        rows, truth, ignore_index=IGNORE, label_smoothing=label_smoothing, reduction="sum"
    )
    right = (rows.detach().argmax(dim=1) == truth).sum()
    return total / (judged if pixels is None else pixels).clamp(min=1), right, judged
