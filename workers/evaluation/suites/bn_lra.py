"""Attention-BN's and -SH's tables 2, 7 and 11."""

from __future__ import annotations

from typing import Any

from assay.workers.evaluation.suites.primal_lra import LRA_RULES, primal_lra

__all__ = ["bn_lra"]

TASKS = ("sequence",)
RULES = LRA_RULES
PAPER = "Nguyen et al. 2023, A primal-dual framework for transformers and neural networks, tables 2, 7, 11"


def bn_lra() -> list[dict[str, Any]]:
    """Accuracy on a task of the Long Range Arena, with calibration.

    The row of `primal_lra`, with the published numbers of this paper's mechanisms.
    """
    return primal_lra()
