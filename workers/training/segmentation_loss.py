"""The loss of segmentation: cross-entropy of the pixels that have a class."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional

from assay.workers.data.formats.segmentation import IGNORE


def _alone(count: Tensor) -> Tensor:
    return count


def pixel_loss(
    logits: Tensor, maps: Tensor, label_smoothing: float, sum_of: Callable[[Tensor], Tensor] = _alone
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of the pixels that have a class.

    Args:
        logits: (B, K, H, W).
        maps: classes or IGNORE, int64 (B, H, W).
        label_smoothing: probability spread evenly over the classes, in [0, 1).
        sum_of: the sum of a count over all processes of the training.

    Returns:
        The mean loss over the pixels that have a class (0 where none has), how many of them are right, and
        how many there are. Of several processes each gets its share of the mean over the pixels of all.
    """
    # A row per pixel: torch's loss of maps has no deterministic form on a GPU.
    rows, truth = logits.movedim(1, -1).flatten(0, -2), maps.flatten()  # (B * H * W, K), (B * H * W,)
    judged = (truth != IGNORE).sum()
    total = functional.cross_entropy(
        rows, truth, ignore_index=IGNORE, label_smoothing=label_smoothing, reduction="sum"
    )
    right = (rows.detach().argmax(dim=1) == truth).sum()
    return total / sum_of(judged.clone()).clamp(min=1), right, judged
