"""Outcomes of an attack on text, per example."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from assay.service.contract.gallery import GalleryItem
from assay.workers.evaluation.engine.outcomes import OutcomeFile

Status = Literal["skipped", "succeeded", "failed"]


@dataclass(frozen=True)
class TextRow:
    """One example."""

    id: str
    label: int
    prediction: int  # the model's answer to the text that counts, -1 where its logits are not finite
    # `skipped` where it was wrong before the attack, else whether the attack succeeded or failed
    status: Status
    loss: float  # cross-entropy to the label on the text that counts; may be infinite or NaN
    queries: int  # texts queried by the search, the unchanged one included
    passes: int  # texts seen by the model: repeated texts are cached
    words: int  # of the unchanged text
    changed: int  # how many of them differ in the text that counts
    nonfinite: bool  # the logits of the text that counts are not finite
    original: str
    text: str  # the text that counts: the adversarial one, or the best of a failed search
    # softmax of the prediction for the unchanged text; None where it is not finite
    clean_confidence: float | None = None
    confidence: float | None = None  # that for the text that counts
    backward: int = 0  # gradients taken by the search
    # share of fresh draws of a random model that are right on the text that counts, or None
    expected: float | None = None
    # the same on the unchanged text. `status` is then about most of these draws
    clean_expected: float | None = None


@dataclass(frozen=True)
class TextOutcomes:
    """One row per example, in the order of the shard."""

    rows: tuple[TextRow, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)  # further evidence for warnings
    keep_adversarial: bool = False  # whether the adversarial texts become a file
    gallery: tuple[GalleryItem, ...] | None = None
    analysis: ClassVar[bool] = False

    @property
    def ids(self) -> tuple[str, ...]:
        """Example ids."""
        return tuple(row.id for row in self.rows)

    @property
    def forward(self) -> Tensor:
        """Texts that the model saw, int64 (n,)."""
        return torch.tensor([row.passes for row in self.rows], dtype=torch.int64)

    @property
    def backward(self) -> Tensor:
        """Gradients taken, int64 (n,); zeros for a search without gradients."""
        return torch.tensor([row.backward for row in self.rows], dtype=torch.int64)

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns; a loss that is not finite is None."""
        rows = self.rows
        return {
            "id": [row.id for row in rows],
            "label": [row.label for row in rows],
            "prediction": [row.prediction for row in rows],
            "correct": [row.status == "failed" for row in rows],
            "clean_correct": [row.status != "skipped" for row in rows],
            "status": [row.status for row in rows],
            "loss": [row.loss if math.isfinite(row.loss) else None for row in rows],
            "queries": [row.queries for row in rows],
            "words": [row.words for row in rows],
            "changed": [row.changed for row in rows],
            "forward": [row.passes for row in rows],
            "backward": [row.backward for row in rows],
            **self._expected(),
        }

    def _expected(self) -> dict[str, list[Any]]:
        if any(row.expected is None for row in self.rows):
            return {}
        names = ("expected", "clean_expected")
        return {name: [getattr(row, name) for row in self.rows] for name in names}

    def evidence(self) -> dict[str, Any]:
        """The counts that warnings rest on; counts of shards add up."""
        return {"nonfinite": sum(row.nonfinite for row in self.rows), **self.notes}

    def files(self) -> Iterable[OutcomeFile]:
        """The adversarial texts, if requested: one file of JSON lines, possibly empty."""
        if self.keep_adversarial:
            yield OutcomeFile("adversarial", ".jsonl", self.adversarial())

    def adversarial(self) -> bytes:
        """The adversarial texts found, one JSON object per line; empty without any."""
        keys = ("id", "label", "prediction", "queries", "changed", "original", "text")
        lines = (
            json.dumps({key: getattr(row, key) for key in keys}, ensure_ascii=False) + "\n"
            for row in self.rows
            if row.status == "succeeded"
        )
        return "".join(lines).encode("utf-8", "surrogatepass")
