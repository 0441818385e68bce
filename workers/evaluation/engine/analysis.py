"""Analyses: evaluations of a model's internals or cost, not of its answers.

n = examples, or repeats of a measurement of the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from assay.workers import accelerator
from assay.workers.evaluation.engine.forward import Result
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


def in_halves(asked: int, measure: Callable[[int], Result]) -> tuple[Result, int, dict[str, Any]]:
    """Measures a batch, halved where memory is short; its size, and the caveat as facts.

    An OutOfMemoryError: a single example does not fit.
    """
    size = asked
    while True:
        try:
            measured = measure(size)
            break
        except torch.OutOfMemoryError:
            if size == 1:
                raise
        size //= 2
        accelerator.empty_cache()
    return measured, size, {"reduced_batch": {"asked": asked, "used": size}} if size < asked else {}


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
