"""Primal-Attention's tables 3 and 8."""

from __future__ import annotations

from typing import Any

__all__ = ["primal_lra"]

TASKS = ("sequence",)
RULES = LRA_RULES = (
    ("data.words == False", "the Long Range Arena has sequences of symbols, bytes or pixels, not of words"),
)
PAPER = "Chen et al. 2023, Primal-Attention: Self-attention through Asymmetric Kernel SVD, tables 3, 8"


def primal_lra() -> list[dict[str, Any]]:
    """Accuracy on a task of the Long Range Arena, with calibration.

    For classifiers of token sequences. Published numbers stand next to it for `lra_transformer` on the
    released test parts. Seconds and memory of the paper's table 4 are those of its GPU.
    """
    return [{"name": "top1"}]
