"""A suite of Assay's evaluations and the package's."""

from __future__ import annotations

from typing import Any

__all__ = ["mixed"]


def mixed() -> list[dict[str, Any]]:
    """Accuracy on images as they are and mirrored, and under MI-FGSM."""
    return [{"name": "clean"}, {"name": "mirrored"}, {"name": "mifgsm", "params": {"epsilon": "96/255"}}]
