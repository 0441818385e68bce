"""Input and output types of the store: plain values, no database objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from assay.service.contract.checkpoints import OWN_LAYOUT, PROGRAM_LAYOUT
from assay.service.contract.events import EventData, EventType
from assay.service.contract.keys import Scope
from assay.service.contract.records import (
    Columns,
    ErrorRecord,
    JobProvenance,
    OutcomeExtra,
    Plan,
    Replan,
    VerdictRecord,
)
from assay.service.contract.states import JobState, ShardState
from assay.service.contract.stored_specs import ComponentReference, Spec
from assay.service.contract.studies import ArmTemplate, Role, RunState
from assay.service.contract.weights_options import WeightsReading

JobKind = Literal["train", "evaluate", "check"]
ShardKind = Literal["plan", "train", "evaluate", "check"]
CheckpointState = Literal["checking", "ready", "rejected"]
Unit = Literal["examples", "steps"]


@dataclass(frozen=True)
class JobRow:
    """A job. Times are unix seconds of the database's clock.

    Attributes:
        attempt: 1, and one more for each retry.
        started_at: when the present attempt was first claimed.
        deadline: when the present attempt times out; None before it is known, or without limits.
        plan: what the plan shard decided, without its list of shards; None before.
        error: `{"type", "message"}` of a failed or timed out job.
        progress_done: examples or steps so far, summed over the shards.
        cost_done: the part of `cost_total` that is done, in the plan's units of work (steps for training).
        model: the model's catalog name.
        paced_at: when the attempt's first shard that measures was claimed.
        paced_from: `cost_done` at that time.
        pace: speed of each evaluation (`transactions/pace.py`); None for trainings.
        tenant: whose job it is; None where the service asked for no keys.
        study_id: the study that it is part of; None for a job of its own.
        replans: when it was planned again, the oldest first.
    """

    id: str
    kind: JobKind
    name: str
    tags: list[str]
    state: JobState
    attempt: int
    priority: int
    created_at: float
    started_at: float | None
    finished_at: float | None
    deadline: float | None
    spec: Spec
    plan: Plan | None
    provenance: JobProvenance | None
    message: str
    error: ErrorRecord | None
    progress_done: int
    progress_total: int | None
    progress_unit: Unit
    cost_done: float
    cost_total: float | None
    model: str
    paced_at: float | None = None
    paced_from: float = 0.0
    pace: dict[str, Any] | None = None
    tenant: str | None = None
    study_id: str | None = None
    replans: list[Replan] | None = None


class JobFilters(TypedDict, total=False):
    """What listed jobs have: `search` is a part of the name, or the id; None filters nothing."""

    state: str | None
    kind: str | None
    model: str | None
    tag: str | None
    search: str | None


@dataclass(frozen=True)
class SourceRow:
    """A job as a source of weights; `expired` if they were deleted because it ended long ago."""

    kind: JobKind
    state: JobState
    spec: Spec
    expired: bool


@dataclass(frozen=True)
class CheckpointRow:
    """Uploaded weights.

    Attributes:
        job_id: the job that checks them, whose folder has the file.
        model: {"name", "params"} with every default filled in.
        size: of the file, in bytes.
        sha256: of the file.
        reading: `normalization` and `positions` as stated by the upload, None where unstated.
        verdict: `contract.checkpoints.Verdict` of the check behind the present state; None without one.
        error: `{"type", "message"}` of a rejected one.
    """

    job_id: str
    name: str
    state: CheckpointState
    model: ComponentReference
    size: int
    sha256: str
    reading: WeightsReading
    created_at: float
    verdict: VerdictRecord | None
    error: ErrorRecord | None

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
        """The task of an exported program; None for weights, whose model has it, and where unknown."""
        program = (self.verdict or {}).get("program")
        return None if program is None else program.get("task", "classification")

    @property
    def dtypes(self) -> list[str] | None:
        """Allowed values of `execution.dtype` for an exported program; None where unknown."""
        program = (self.verdict or {}).get("program")
        return None if program is None else list(program["dtypes"])


@dataclass(frozen=True)
class StudyJobRow:
    """A job of a study: its arm by position, its seed and role.

    Attributes:
        state: "deleted" for a job that is gone.
        share: of its work that is done, in [0, 1].
        message: why it failed; empty otherwise.
    """

    arm: int
    seed: int
    role: Role
    job_id: str
    state: RunState
    share: float
    message: str


@dataclass(frozen=True)
class StudyRow:
    """A study. `templates` are the jobs of its arms, with seed 0.

    Attributes:
        runs: its jobs, by seed, arm and role; a shared training once for each arm.
        tenant: whose it is; empty where the service asked for no keys.
    """

    id: str
    tenant: str
    name: str
    spec: dict[str, Any]
    templates: list[ArmTemplate]
    created_at: float
    runs: list[StudyJobRow]

    @property
    def states(self) -> dict[str, RunState]:
        """The state of each job by its id, in order."""
        return {run.job_id: run.state for run in self.runs}


@dataclass(frozen=True)
class Claim:
    """A worker's right to one shard, until another claim of that shard has a higher fence.

    Attributes:
        shard_id: `<job id>-plan`, `-train` or `-check`, or `<job id>-<evaluation>-<number>`.
        attempt: the job's attempt.
        evaluation: index into the spec's evaluations; 0 for plan and train shards.
        start: first position in the evaluation order; `stop` is one past the last.
        expected_seconds: of an evaluate shard, at the speed that the plan measured; else 0.
        requirements: digest of what its worker must have; empty for nothing.
    """

    shard_id: str
    job_id: str
    kind: ShardKind
    attempt: int
    fence: int
    worker: str
    spec: Spec
    plan: Plan | None
    evaluation: int
    number: int
    start: int
    stop: int
    failures: int
    losses: int
    expected_seconds: float = 0.0
    requirements: str = ""


@dataclass(frozen=True)
class ShardRow:
    """A shard. `owner` and `lease_until` are set only while it runs; its worker needs `devices` devices."""

    id: str
    job_id: str
    kind: ShardKind
    evaluation: int
    number: int
    start: int
    stop: int
    device: str
    devices: int
    state: ShardState
    fence: int
    owner: str | None
    lease_until: float | None
    failures: int
    losses: int
    done: int
    total: int | None
    cost: float
    device_faults: int = 0

    @property
    def worker(self) -> str:
        """The owner as named in claims; empty for an unclaimed shard."""
        return self.owner or ""


@dataclass(frozen=True)
class RunningShard:
    """A running shard's progress as stored in the database.

    Attributes:
        cost: of the whole shard, in the plan's units of work.
    """

    id: str
    fence: int
    kind: ShardKind
    done: int
    total: int | None
    cost: float


@dataclass(frozen=True)
class ProgressSnapshot:
    """The sums over a job's shards and its running shards, all at one moment."""

    progress_done: int
    cost_done: float
    running: list[RunningShard]


@dataclass(frozen=True)
class EventRow:
    """Something that happened to a job; `seq` counts up from 1 for each job, `at` is in unix seconds."""

    job_id: str
    seq: int
    type: EventType
    data: EventData
    at: float


@dataclass(frozen=True)
class OutcomeRow:
    """Measurements of one shard, per example.

    Attributes:
        n: examples in the shard.
        columns: lists of length n by column name; non-finite floats are kept.
        extra: other input of the merge.
    """

    evaluation: int
    number: int
    n: int
    columns: Columns
    seconds: float
    forward_passes: int
    backward_passes: int
    extra: OutcomeExtra


@dataclass(frozen=True)
class Finished:
    """Completions by a finished shard: its evaluation, its job. Each is true for one shard only."""

    evaluation_done: bool
    job_done: bool


@dataclass(frozen=True)
class ArtifactRow:
    """A file written by a job: size in bytes, path on the machine or share that holds the state.

    Attributes:
        expired_at: when the file was deleted because its job had ended long ago; None while it is there.
    """

    job_id: str
    name: str
    path: str
    size: int
    sha256: str
    media_type: str
    created_at: float
    expired_at: float | None = None


@dataclass(frozen=True)
class KeyRow:
    """An API key, without its secret and its hash. Times are unix seconds of the database's clock.

    Attributes:
        prefix: the public beginning of the key's text.
        scopes: in the order of `contract.keys.SCOPES`.
        tenant: owner of the jobs that the key makes and sees.
    """

    id: str
    name: str
    prefix: str
    scopes: list[Scope]
    tenant: str
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None


@dataclass(frozen=True)
class BrowserSessionRow:
    """A browser session, its key, and the CSRF token required by calls that change state."""

    key: KeyRow
    csrf: str
    expires_at: float
