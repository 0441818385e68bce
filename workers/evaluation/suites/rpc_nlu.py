"""Accuracy of a text classifier, clean and under attack: RPC-Attention's tables 11 and 12, and more."""

from __future__ import annotations

from typing import Any

__all__ = ["rpc_nlu"]

TASKS = ("sequence",)
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, tables 11, 12"


def rpc_nlu() -> list[dict[str, Any]]:
    """Accuracy with calibration on the job's texts, then under DeepWordBug, which needs no cache.

    The published numbers are accuracies of the validation part (SST-2, SST-5, IMDB) and of the test part
    (SST-5), of other models than ours: they stand next to the first row with a protocol that says so.
    """
    return [{"name": "top1"}, {"name": "deepwordbug"}]
