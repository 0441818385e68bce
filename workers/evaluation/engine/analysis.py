"""Analyses: evaluations of a model's internals or cost, not of its answers.

n = examples, or repeats of a measurement of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.workers.evaluation.engine.outcomes import WithoutFiles


@dataclass(frozen=True)
class Measured(WithoutFiles):
    """One row per example, or per repeat, in the order of `ids`; all tensors are on the CPU."""

    ids: tuple[str, ...]  # example ids, or names of the repeats
    values: Mapping[str, Tensor]  # measurements by name, (n, ...); values that are not finite become None
    forward: Tensor
    backward: Tensor
    facts: Mapping[str, Any] = field(default_factory=dict)  # facts not about single rows: JSON values
    analysis: ClassVar[bool] = True

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns; a value may be a list."""
        return {
            "id": list(self.ids),
            **{name: _finite(values.tolist()) for name, values in self.values.items()},
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }

    def evidence(self) -> dict[str, Any]:
        """Facts for the merge beside the rows."""
        return dict(self.facts)


def of_one_pass(ids: tuple[str, ...], values: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Measured:
    """Measurements that took a forward pass of the model for each example."""
    ones = torch.ones(len(ids), dtype=torch.int64)
    return Measured(ids, values, ones, torch.zeros_like(ones), facts)


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
