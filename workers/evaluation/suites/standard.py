"""The suite for signing off a release: a robust accuracy, and every check that could refute it."""

from __future__ import annotations

from typing import Any

__all__ = ["standard"]

TASKS = ("classification",)
# The budget of RobustBench's Linf leaderboards on CIFAR; the headline number is at it.
BUDGET = "8/255"
# Smaller ones for the curve, which must fall, and one at which nothing may be left.
CURVE = ("1/255", "2/255", "4/255", BUDGET, "64/255")
# AutoAttack of 3 and of 2 classes: its targeted DLR loss needs 4, the DLR loss 3.
INSTEAD = {
    "autoattack": [
        {"version": "custom", "stages": ["apgd_ce", "apgd_dlr", "fab_t", "square"]},
        {"version": "custom", "stages": ["apgd_ce", "fab_t", "square"]},
    ]
}


def standard() -> list[dict[str, Any]]:
    """Clean accuracy, AutoAttack at 8/255, and the rows that its cross-checks need.

    The result is AutoAttack's row. The others are there to contradict it: noise and one step must not beat
    gradients, more steps of PGD must not help the model, accuracy must fall with epsilon and be gone at
    64/255, and attacks without gradients (Square, SPSA) must not beat those with them. With fewer than four
    classes AutoAttack is its version custom, of the stages whose losses are defined.
    """
    attacks = [
        ("uniform_noise", {"epsilon": BUDGET, "draws": 10}),
        ("fgsm", {"epsilon": BUDGET}),
        *(("pgd", {"epsilon": epsilon}) for epsilon in CURVE),
        ("pgd", {"epsilon": BUDGET, "steps": 100}),
        ("square", {"epsilon": BUDGET, "queries": 1000}),
        ("spsa", {"epsilon": BUDGET}),
        ("autoattack", {"epsilon": BUDGET, "norm": "Linf", "version": "standard"}),
    ]
    return [{"name": "clean"}, *({"name": name, "params": params} for name, params in attacks)]
