"""Encoder for dense prediction: one token per patch, at any image size."""

from __future__ import annotations

from typing import ClassVar, Protocol

from torch import Tensor, nn


class Backbone(Protocol):
    """Makes the model that another is built on: one of the catalog, or one with parameters bound."""

    def __call__(self, classes: int, channels: int) -> nn.Module:
        """Of images, 0 classes mean no head; of language, both numbers are its words."""
        ...


class Encoder(Protocol):
    """Backbone with patch tokens that can be decoded; its builder states the fact `patch_tokens`."""

    # Name prefixes of the weights that a classifier has and an encoder lacks.
    CLASSIFIER_ONLY: ClassVar[tuple[str, ...]]

    image_size: int
    num_features: int

    @property
    def patch_size(self) -> int:
        """Height and width of a patch in pixels."""

    def as_encoder(self) -> None:
        """Remove the parts only needed for classification, permanently."""

    def patch_tokens(self, images: Tensor) -> tuple[Tensor, tuple[int, int]]:
        """Normalised patch tokens (B, P, C), row by row, and their grid (height, width).

        Of images (B, channels, H, W); `patch_size` divides both sides.
        """
