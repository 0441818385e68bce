"""Attention-BN's and -SH's tables 1, 5 and 10."""

from __future__ import annotations

from typing import Any

from assay.workers.evaluation.suites.primal_uea import primal_uea

__all__ = ["bn_uea"]

TASKS = ("series",)
PAPER = "Nguyen et al. 2023, A primal-dual framework for transformers and neural networks, tables 1, 5, 10"


def bn_uea() -> list[dict[str, Any]]:
    """Accuracy on a UEA set with calibration, then under FGSM and PGD on the standardised series.

    The rows of `primal_uea`, for the same sets: the paper's tables have accuracy only.
    """
    return primal_uea()
