"""The attacks of RPC-Attention's table 2."""

from __future__ import annotations

from typing import Any

__all__ = ["rpc_table2"]

TASKS = ("classification",)
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, table 2"


def rpc_table2() -> list[dict[str, Any]]:
    """Clean accuracy and the seven attacks of RPC-Attention's table 2, for jobs with protocol paper.

    Budgets are the table's; parameters are those of the released code, also where the text says otherwise (10
    steps of SPSA, not 40; a PGD step of 0.15 epsilon). PGD and FGSM are at the largest of their budgets. No
    code was released for AutoAttack; as a worst case over several attacks it is measured on pixels.
    """
    return [
        {"name": "clean"},
        {
            "name": "pgd",
            "params": {"epsilon": "6/255", "steps": 20, "relative_step_size": 0.15, "random_start": True},
        },
        {"name": "fgsm", "params": {"epsilon": "6/255"}},
        {
            "name": "spsa",
            # cleverhans estimates the gradient at 2x, and so did the paper.
            "params": {"epsilon": 0.1, "steps": 10, "samples": 128, "gradient_point": "shifted"},
        },
        {"name": "sparse_l1_descent", "params": {"epsilon": 10}},
        {"name": "carlini_wagner", "params": {"confidence": 0.03, "shared_constant": True}},
        {"name": "uniform_noise", "params": {"epsilon": 0.3}},
        {"name": "autoattack", "params": {"epsilon": "1/255", "norm": "Linf", "version": "standard"}},
    ]
