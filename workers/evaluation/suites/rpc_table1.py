"""Clean accuracy, natural shifts and corruptions: RPC-Attention's table 1."""

from __future__ import annotations

from typing import Any

from assay.workers.evaluation.suites.natural_shifts import natural_shifts

__all__ = ["rpc_table1"]

TASKS = ("classification",)
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, table 1"


def rpc_table1() -> list[dict[str, Any]]:
    """Top-1 and -5 on ImageNet, top-1 on ImageNet-R and -A, the stored ImageNet-C, AUPR on ImageNet-O.

    Folders below ASSAY_DATA_ROOT: imagenet, imagenet-r, imagenet-a, imagenet-c, imagenet-o. For a model of
    ImageNet's 1000 classes.
    """
    *accuracies, anomalies = natural_shifts()
    corrupted = {"name": "corruptions", "params": {"source": "stored"}, "data": {"name": "imagenet_c"}}
    return [*accuracies, corrupted, anomalies]
