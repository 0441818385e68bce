"""Outcomes of evaluations: a row per example, evidence, files. n examples, or repeats of a machine's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from torch import Tensor

from assay.service.contract.gallery import GalleryItem


@dataclass(frozen=True)
class OutcomeFile:
    """A file of a shard for the job's artifacts."""

    stem: str  # beginning of the name; evaluation and shard follow
    suffix: str  # end of the name: ".safetensors", ".jsonl",
    content: bytes  # all bytes of it


class Outcomes(Protocol):
    """One row per example, in the order of `ids`, tensors on the CPU; see `WithoutFiles`."""

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
        """Whether the rows have a summary of their own, in `service/metrics/tables/`."""

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns of n values, with `id`, `forward` and `backward`; None if not finite."""

    def evidence(self) -> dict[str, Any]:
        """Evidence for warnings, as JSON; counts of several shards add up."""

    def files(self) -> Iterable[OutcomeFile]:
        """Files for the job's artifacts, each made on demand."""


@runtime_checkable
class WithGallery(Protocol):
    """Outcomes with examples to look at."""

    @property
    def gallery(self) -> Sequence[GalleryItem] | None:
        """The shard's candidates for the gallery of its evaluation; None for an evaluation without one."""


class WithoutFiles:
    """Outcomes without files, summarised by the metrics of their task."""

    analysis: ClassVar[bool] = False

    def files(self) -> Iterable[OutcomeFile]:
        """No files."""
        return ()


class WithFaults(WithoutFiles):
    """Outcomes that count rows whose logits are not finite, with the evidence that a loader noted."""

    nonfinite: int
    noted: Mapping[str, Any]

    def evidence(self) -> dict[str, Any]:
        """The counts that warnings rest on; counts of shards add up."""
        return {"nonfinite": self.nonfinite, **self.noted}


@dataclass(frozen=True)
class Stage:
    """Counts of a stage of an attack in one shard."""

    name: str  # catalog name of the attack
    n: int
    broken: int
    forward: int
    backward: int
    zero_gradient: int  # examples whose first gradient in this stage was zero everywhere
    number: int  # of the stage in its ensemble; a screened one appears twice
    seconds: float
    expected: float | None = None  # expected number of right answers after it, where that was estimated

    def counts(self) -> dict[str, Any]:
        """The counts as JSON."""
        return {key: value for key, value in asdict(self).items() if value is not None}
