"""A classifier of which some logits count, for test sets with some of its classes.

Hendrycks et al. 2021, "Natural Adversarial Examples", as in the released evaluation: a model of ImageNet's
1000 classes is asked which of 200 it is; the other logits are left out before the softmax. Attacks see no
others either.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from assay.models.layers.layers import Classifier


class SomeClasses(nn.Module):
    """The backbone, and then the chosen ones of its logits: (B, K) to (B, k)."""

    chosen: Tensor

    def __init__(self, backbone: nn.Module, chosen: Sequence[int]) -> None:
        super().__init__()
        self.backbone = backbone
        self.register_buffer("chosen", torch.tensor(list(chosen), dtype=torch.int64))

    def forward(self, images: Tensor) -> Tensor:
        """The chosen logits (B, k) of normalised images (B, C, H, W)."""
        logits: Tensor = self.backbone(images)
        return logits.index_select(1, self.chosen)


def restricted(classifier: Classifier, chosen: Sequence[int]) -> Classifier:
    """The same classifier with the chosen logits alone, in their order; parameters are shared, not copied."""
    mean, std = (values.flatten().tolist() for values in (classifier.mean, classifier.std))
    return Classifier(SomeClasses(classifier.backbone, chosen), mean, std).to(classifier.mean).eval()
