"""What every evaluation gives back: one row per example, what warnings rest on, and files.

n = examples, or repeats of an evaluation that measures the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor


@dataclass(frozen=True)
class OutcomeFile:
    """A file that a shard leaves among the job's artifacts.

    Attributes:
        stem: What the name begins with; evaluation and shard follow.
        suffix: What it ends with: ".safetensors", ".jsonl", ...
        content: All bytes of it.
    """

    stem: str
    suffix: str
    content: bytes


class Outcomes(Protocol):
    """One row per example, in the order of `ids`; all tensors are on the CPU.

    `WithoutFiles` has `files` and `analysis` for outcomes that are rows alone.
    """

    @property
    def ids(self) -> Sequence[str]:
        """Example ids, or names of the repeats, (n,)."""

    @property
    def forward(self) -> Tensor:
        """Forward passes of each row, int64 (n,)."""

    @property
    def backward(self) -> Tensor:
        """Backward passes of each row, int64 (n,)."""

    @property
    def analysis(self) -> bool:
        """Whether the rows have a summary of their own, in `service/metrics/analyses/`."""

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns of n values each, `id`, `forward` and `backward` among them.

        What is not finite is None.
        """

    def evidence(self) -> dict[str, Any]:
        """What warnings rest on, as JSON; counts of several shards add up."""

    def files(self) -> Iterable[OutcomeFile]:
        """Files for the job's artifacts, each made when it is asked for."""


class WithoutFiles:
    """Outcomes that leave no files, and that the metrics of their task summarise."""

    analysis: ClassVar[bool] = False

    def files(self) -> Iterable[OutcomeFile]:
        """No files."""
        return ()
