"""The attacks of RPC-Attention's tables for FAN and for the base model."""

from __future__ import annotations

from typing import Any

__all__ = ["rpc_fan"]

TASKS = ("classification",)
PAPER = (
    "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, tables 8 and 10"
)


def rpc_fan() -> list[dict[str, Any]]:
    """Clean accuracy, PGD and FGSM as in RPC-Attention's tables 8 and 10, for jobs with protocol paper."""
    return [
        {"name": "clean"},
        {
            "name": "pgd",
            "params": {"epsilon": "6/255", "steps": 20, "relative_step_size": 0.15, "random_start": True},
        },
        {"name": "fgsm", "params": {"epsilon": "6/255"}},
    ]
