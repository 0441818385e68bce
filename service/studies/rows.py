"""Rows of studies: plain values, no database objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assay.service.contract.states import TERMINAL, JobState
from assay.service.studies.designs.rows import Fixing
from assay.service.studies.wire import ArmTemplate, ExtensionState, Role, RunState, StudyLook

REOPENED: tuple[ExtensionState, ...] = ("canceled", "failed")  # by `retry`


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
class Extension:
    """How far the service has extended a study with `until`, and why it goes no further."""

    looks: list[StudyLook]
    state: ExtensionState
    reason: str = ""


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
    extension: Extension | None = None  # None without `until`

    @property
    def states(self) -> dict[str, RunState]:
        """The state of each job by its id, in order."""
        return {run.job_id: run.state for run in self.runs}

    @property
    def looked_for(self) -> bool:
        """Whether all its jobs have succeeded, and the service is to look whether seeds are to be added."""
        going_on = self.extension is not None and self.extension.state == "open"
        return going_on and {*self.states.values()} == {JobState.SUCCEEDED}

    @property
    def ended(self) -> bool:
        """Whether all its jobs have ended, and no look is to come."""
        return not self.looked_for and all(run.state in (*TERMINAL, "deleted") for run in self.runs)
