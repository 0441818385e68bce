"""Primal-Attention's table 1."""

from __future__ import annotations

from typing import Any

__all__ = ["primal_uea"]

TASKS = ("series",)
PAPER = "Chen et al. 2023, Primal-Attention: Self-attention through Asymmetric Kernel SVD, table 1"
# Standard deviations of a feature.
EPSILONS = (0.05, 0.1)


def primal_uea() -> list[dict[str, Any]]:
    """Accuracy on a UEA set with calibration, then under FGSM and PGD on the standardised series.

    For classifiers of time series. Published numbers stand next to the first row, for `uea_transformer` on
    the ten sets of the table. The attacks' budgets are in standard deviations; the paper attacks nothing.
    """
    attacks = [
        {"name": name, "params": {"epsilon": epsilon}} for name in ("fgsm", "pgd") for epsilon in EPSILONS
    ]
    return [{"name": "top1"}, *attacks]
