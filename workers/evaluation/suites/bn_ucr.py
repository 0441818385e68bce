"""Error of a regression on a set of the extrinsic regression archive: Attention-BN's and -SH's table 8."""

from __future__ import annotations

from typing import Any

__all__ = ["bn_ucr"]

TASKS = ("series_regression",)
PAPER = "Nguyen et al. 2023, A primal-dual framework for transformers and neural networks, table 8"


def bn_ucr() -> list[dict[str, Any]]:
    """Root mean square error of a regression, then under noise, missing values, warped and shifted time.

    The published table has the first row only, for a network whose sizes are not stated, so that no published
    number stands next to it.
    """
    names = ("series_noise", "missing_values", "time_warp", "time_shift")
    return [{"name": "rmse"}, *({"name": name} for name in names)]
