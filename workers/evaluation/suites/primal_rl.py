"""Normalised return of a policy: Primal-Attention's table 5."""

from __future__ import annotations

from typing import Any

__all__ = ["primal_rl"]

TASKS = ("control",)
PAPER = "Chen et al. 2023, Primal-Attention: Self-attention through Asymmetric Kernel SVD, table 5"


def primal_rl() -> list[dict[str, Any]]:
    """Normalised return over episodes with true observations.

    A job for each environment and quality of the trajectories; the table has the mean of three seeds, times
    100. It has no published numbers beside it: D4RL's episodes are of an older simulator.
    """
    return [{"name": "returns"}]
