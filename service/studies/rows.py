"""Rows of studies: plain values, no database objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.service.studies.designs.rows import Fixing
from assay.service.studies.wire import ArmTemplate, Role, RunState


@dataclass(frozen=True)
class StudyJobRow:
    """A job of a study: its arm by position, its seed and role."""

    arm: int
    seed: int
    role: Role
    job_id: str
    state: RunState  # "deleted" for a deleted job
    share: float  # done part of its work, in [0, 1]
    message: str  # why it failed; empty otherwise


@dataclass(frozen=True)
class StudyRow:
    """A study. `templates` are the jobs of its arms, with seed 0."""

    id: str
    tenant: str  # empty where the service asked for no keys
    name: str
    spec: dict[str, Any]
    templates: list[ArmTemplate]
    created_at: float
    runs: list[StudyJobRow]  # by seed, arm and role; a shared training once for each arm
    design: str | None = None  # digest of what was posted; None for a study of an earlier version
    fixing: Fixing | None = None

    @property
    def states(self) -> dict[str, RunState]:
        """The state of each job by its id, in order."""
        return {run.job_id: run.state for run in self.runs}
