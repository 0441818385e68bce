"""Uploaded weights and programs as users see them."""

from __future__ import annotations

from typing import Any, Literal

from assay.service.contract.results import Answer, JobError
from assay.service.contract.weights.checkpoints import Faults, ProgramFacts
from assay.service.contract.weights.options import Normalization, Positions
from assay.service.contract.weights.stored_checkpoints import CheckpointState


class Checkpoint(Answer):
    """Uploaded weights or program. `sha256` is of the file; `error` and `faults` say why it was rejected.

    `normalization`, `positions` and `class_names` are as stated by the upload, null where unstated. The model
    does not need the file's tensors `left_out`; position embeddings `resized` are resized.
    """

    name: str
    state: CheckpointState
    model: dict[str, Any]
    layout: str | None
    classes: int | None
    channels: int | None
    program: ProgramFacts | None
    normalization: Normalization | Literal["data"] | None
    positions: Positions | None
    class_names: list[str] | None = None
    left_out: list[str]
    resized: list[str]
    size: int
    sha256: str
    created_at: str
    error: JobError | None
    faults: Faults | None
