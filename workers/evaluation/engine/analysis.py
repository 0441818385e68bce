"""Analyses: evaluations that look into a model, or at what it costs, instead of judging its answers.

Each one is an evaluation whose function returns an `Analysis`. What it measured is merged by the function
`summarise` of the module of the same name in `service/metrics/analyses/`, in a process without tensors.

n = examples, or repeats of one that measures the machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from assay.workers.evaluation.engine.loader import DType, Images, Progress


@dataclass(frozen=True)
class Measured:
    """One row per example, or per repeat, in the order of `ids`; all tensors are on the CPU.

    Attributes:
        ids: Example ids, or names of the repeats.
        values: What was measured of each, (n, ...); what is not finite becomes None.
        forward: Forward passes of each, int64 (n,).
        backward: Backward passes of each, int64 (n,).
        facts: What is not about single rows: JSON values.
    """

    ids: tuple[str, ...]
    values: Mapping[str, Tensor]
    forward: Tensor
    backward: Tensor
    facts: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns; a value may be a list."""
        return {
            "id": list(self.ids),
            **{name: _finite(values.tolist()) for name, values in self.values.items()},
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }

    def evidence(self) -> dict[str, Any]:
        """What the merge must know beside the rows."""
        return dict(self.facts)


@runtime_checkable
class Analysis(Protocol):
    """What the function of an analysis returns: its parameters, ready to be run."""

    def analyse(
        self,
        model: nn.Module,
        images_of: Images,
        ids: Sequence[str],
        *,
        seed: int,
        batch_size: int,
        device: torch.device,
        dtype: DType,
        progress: Progress | None = None,
    ) -> Measured:
        """Measures.

        Args:
            model: Maps images in [0, 1] to logits; on `device`, in `dtype` (float32 for bfloat16, which is
                autocast). Its mode, parameters and buffers are left as they were.
            images_of: Loads images by index.
            ids: Example ids; indices go from 0 to len(ids) - 1 in this order.
            seed: The job's.
            batch_size: Examples at a time.
            device: Where the model is.
            dtype: Arithmetic of the model.
            progress: Told how many rows are done.

        Raises:
            ValueError: If there are no examples, images are outside [0, 1], or the model has nothing to
                look at.
        """
        ...


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
