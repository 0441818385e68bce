"""The rows of RPC-Attention's table 6: Segmenter on ADE20K, clean and under corruptions."""

from __future__ import annotations

from typing import Any

__all__ = ["rpc_ade20k"]

TASKS = ("segmentation",)
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, table 6"


def rpc_ade20k() -> list[dict[str, Any]]:
    """Mean class accuracy and mIoU of whole images, then under the fifteen corruptions at all severities.

    For Segmenters, with windows of 512 pixels of images whose short side is 512. Published numbers stand next
    to them on ADE20K's validation set only. The first row is there in a 75th of the time of the second.
    """
    return [{"name": "sliding_window"}, {"name": "sliding_window_corruptions"}]
