"""The first look at a model's robustness."""

from __future__ import annotations

from typing import Any

__all__ = ["quick"]

TASKS = ("classification",)
EPSILONS = ("1/255", "2/255", "4/255", "8/255")


def quick() -> list[dict[str, Any]]:
    """Clean accuracy, uniform noise, FGSM, PGD and assay_fast at 1, 2, 4 and 8 / 255."""
    attacks = [
        {"name": name, "params": {"epsilon": epsilon}}
        for name in ("uniform_noise", "fgsm", "pgd", "assay_fast")
        for epsilon in EPSILONS
    ]
    return [{"name": "clean"}, *attacks]
