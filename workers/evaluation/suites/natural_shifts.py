"""ImageNet and its natural shifts reported by the papers."""

from __future__ import annotations

from typing import Any

__all__ = ["natural_shifts"]

TASKS = ("classification",)
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, table 1"


def natural_shifts() -> list[dict[str, Any]]:
    """Top-1 on ImageNet, ImageNet-R and -A, AUPR on ImageNet-O, from their folders.

    Folders below ASSAY_DATA_ROOT: imagenet, imagenet-r, imagenet-a, imagenet-o. For a model of ImageNet's
    1000 classes; images are prepared as for the papers' ViTs (bicubic, short side 256 for 224).
    """
    accuracies = [
        {"name": "top1", "data": {"name": name}} for name in ("imagenet", "imagenet_r", "imagenet_a")
    ]
    return [*accuracies, {"name": "aupr", "data": {"name": "imagenet_o"}}]
