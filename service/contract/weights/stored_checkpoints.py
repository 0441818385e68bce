"""Uploaded weights as the store has them, and as jobs that name them are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.records import ErrorRecord
from assay.service.contract.stored_specs import ComponentReference
from assay.service.contract.weights.checkpoints import OWN_LAYOUT, PROGRAM_LAYOUT
from assay.service.contract.weights.options import WeightsReading

CheckpointState = Literal["checking", "ready", "rejected"]


@dataclass(frozen=True)
class CheckpointRow:
    """Uploaded weights."""

    job_id: str  # checks them; its folder has the file
    name: str
    state: CheckpointState
    model: ComponentReference  # {"name", "params"} with every default filled in
    size: int  # bytes of the file
    sha256: str  # of the file
    reading: WeightsReading  # as the upload states it, None where unstated
    created_at: float
    verdict: VerdictRecord | None  # of the check behind the present state; None without a check
    error: ErrorRecord | None  # `{"type", "message"}` of a rejected one

    @property
    def reason(self) -> str:
        """Why it was rejected; empty otherwise."""
        return "" if self.error is None else self.error["message"]

    @property
    def foreign(self) -> bool:
        """Whether the file is known to have no normalisation of its own."""
        layout = (self.verdict or {}).get("layout") or OWN_LAYOUT
        return layout not in (OWN_LAYOUT, PROGRAM_LAYOUT)

    @property
    def facts(self) -> dict[str, int]:
        """`classes` and `channels` of the model, a program's `image_size` or `length`, as far as known."""
        verdict = self.verdict or {}
        program = verdict.get("program")
        known = {
            "classes": verdict.get("classes"),
            "channels": verdict.get("channels"),
            "image_size": None if program is None else program["image_size"],
            "length": None if program is None else program.get("length"),
        }
        return {name: count for name, count in known.items() if count is not None}

    @property
    def gradients(self) -> bool:
        """Whether it has gradients by its inputs, as far as known."""
        program = (self.verdict or {}).get("program")
        return program is None or program.get("gradients", True)

    @property
    def task(self) -> str | None:
        """The task of an exported program; None for weights, where the model has it, and where unknown."""
        program = (self.verdict or {}).get("program")
        return None if program is None else program.get("task", "classification")

    @property
    def dtypes(self) -> list[str] | None:
        """Allowed values of `execution.dtype` for an exported program; None where unknown."""
        program = (self.verdict or {}).get("program")
        return None if program is None else list(program["dtypes"])
