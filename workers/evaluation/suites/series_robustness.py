"""Accuracy of a classifier of time series: clean, perturbed at random, and under attack."""

from __future__ import annotations

from typing import Any

__all__ = ["series_robustness"]

TASKS = ("series",)
# In standard deviations of each feature over the training set.
NOISE = (0.1, 0.5, 1.0)
BUDGETS = (0.05, 0.1, 0.25)


def series_robustness() -> list[dict[str, Any]]:
    """Noise, missing values, warping and shifts of time, and gradient attacks in Linf and L2.

    The published papers measure clean accuracy only: no number here has a published counterpart.
    """
    perturbed = [
        *(("series_noise", {"scale": scale}) for scale in NOISE),
        *(("series_noise", {"scale": scale, "distribution": "uniform"}) for scale in NOISE),
        *(("missing_values", {"share": share}) for share in (0.1, 0.3, 0.5)),
        ("missing_values", {"share": 0.3, "missing": "steps"}),
        *(("time_warp", {"strength": strength}) for strength in (0.25, 0.5, 1.0)),
        *(("time_shift", {"largest": largest}) for largest in (0.1, 0.2)),
    ]
    attacks = [
        *(("fgsm", {"epsilon": epsilon}) for epsilon in BUDGETS),
        *(("pgd", {"epsilon": epsilon}) for epsilon in BUDGETS),
        *(("apgd_ce", {"epsilon": epsilon}) for epsilon in BUDGETS),
        ("apgd_ce", {"epsilon": 1.0, "norm": "L2"}),
    ]
    return [{"name": "top1"}, *({"name": name, "params": params} for name, params in perturbed + attacks)]
