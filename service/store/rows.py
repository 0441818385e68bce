"""Input and output types of the store: plain values, no database objects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from assay.service.contract.events import EventData, EventType
from assay.service.contract.fleet import traces
from assay.service.contract.fleet.worker_records import Repeated
from assay.service.contract.keys import Scope
from assay.service.contract.records import Columns, ErrorRecord, JobProvenance, OutcomeExtra, Plan, Replan
from assay.service.contract.states import JobState, ShardState
from assay.service.contract.stored_specs import Spec
from assay.service.contract.summaries import JobSummary

JobKind = Literal["train", "evaluate", "check"]
ShardKind = Literal["plan", "train", "evaluate", "check", "repeat"]
Unit = Literal["examples", "steps"]


@dataclass(frozen=True)
class JobRow:
    """A job. Times are unix seconds of the database's clock."""

    id: str
    kind: JobKind
    name: str
    tags: list[str]
    state: JobState
    attempt: int  # 1, and one more for each retry
    priority: int
    created_at: float
    started_at: float | None  # of the present attempt's first claim
    finished_at: float | None
    deadline: float | None  # of the present attempt; None before it is known, or without limits
    spec: Spec
    plan: Plan | None  # what the plan shard decided, without its shards; None before
    provenance: JobProvenance | None
    message: str
    error: ErrorRecord | None  # `{"type", "message"}` of a failed or timed out job
    progress_done: int  # examples or steps so far, over all shards
    progress_total: int | None
    progress_unit: Unit
    cost_done: float  # done part of `cost_total`, in the plan's units (steps for training)
    cost_total: float | None
    model: str  # the model's catalog name
    paced_at: float | None = None  # claim of the attempt's first measuring shard
    paced_from: float = 0.0  # `cost_done` at that time
    pace: dict[str, Any] | None = None  # speed by evaluation (`transactions/pace.py`); None for trainings
    tenant: str | None = None  # owner; None where the service asked for no keys
    study_id: str | None = None  # None for a job of its own
    replans: list[Replan] | None = None  # oldest first
    repeated: Repeated | None = None  # what came of repeated shards; None without any
    summary: JobSummary | None = None  # None before it succeeds, and in early versions
    trace: str | None = None  # `traceparent` of its submission; None outside a trace

    @property
    def trace_id(self) -> str | None:
        """Id of the trace in which it was submitted; None outside a trace."""
        return traces.trace_id(self.trace)


class JobFilters(TypedDict, total=False):
    """What listed jobs have: `search` is a part of the name, or the id; None filters nothing."""

    study: str | None
    state: str | None
    kind: str | None
    model: str | None
    tag: str | None
    search: str | None


@dataclass(frozen=True)
class JobGroup:
    """Listed jobs of a study, an arm or a tag, and of an arm the mean clean accuracy of its evaluations."""

    name: str  # empty for jobs without
    study: str | None
    count: int
    measured: int = 0  # evaluations with a clean accuracy
    clean: float | None = None


@dataclass(frozen=True)
class SourceRow:
    """A job as a source of weights; `expired`: they were deleted for their age."""

    kind: JobKind
    state: JobState
    spec: Spec
    expired: bool


@dataclass(frozen=True)
class Claim:
    """A worker's right to one shard, until another claim of that shard has a higher fence."""

    shard_id: str  # `<job id>-plan`, `-train` or `-check`, or `<job id>-<evaluation>-<number>`
    job_id: str
    kind: ShardKind
    attempt: int  # the job's attempt
    fence: int
    worker: str
    spec: Spec
    plan: Plan | None
    evaluation: int  # index into the spec's evaluations; 0 for plan and train shards
    number: int
    start: int  # first position in the evaluation order; `stop` is exclusive
    stop: int
    failures: int
    losses: int
    expected_seconds: float = 0.0  # of an evaluate shard, at the plan's speed; else 0
    requirements: str = ""  # digest of requirements; empty for none
    repeat: bool = False  # measured before; the kind is "evaluate"
    trace: str | None = None  # the job's
    token: str = ""  # proof of a claim over the gateway; empty for others

    @property
    def subject(self) -> dict[str, str]:
        """What lines of the log are about."""
        return {"job": self.job_id, "shard": self.shard_id, **traces.fields(self.trace)}


@dataclass(frozen=True)
class ShardRow:
    """A shard; `owner` and `lease_until` only while it runs; its worker needs `devices` devices."""

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
class ShardReport:
    """What a worker says of a claimed evaluate shard: examples done, and a message, if any."""

    claim: Claim
    done: int
    message: str | None


@dataclass(frozen=True)
class RunningShard:
    """A running shard's progress as stored in the database."""

    id: str
    fence: int
    kind: ShardKind
    done: int
    total: int | None
    cost: float  # in the plan's units of work


@dataclass(frozen=True)
class ProgressSnapshot:
    """A job's sums over its shards, and its running shards, at one moment."""

    progress_done: int
    cost_done: float
    running: list[RunningShard]


@dataclass(frozen=True)
class EventRow:
    """An event of a job; `seq` counts from 1 in each job, `at` is in unix seconds."""

    job_id: str
    seq: int
    type: EventType
    data: EventData
    at: float


@dataclass(frozen=True)
class OutcomeRow:
    """Measurements of a shard, per example."""

    evaluation: int
    number: int
    n: int  # examples in the shard
    columns: Columns  # lists of length n by column name; non-finite floats are kept
    seconds: float
    forward_passes: int
    backward_passes: int
    extra: OutcomeExtra  # other input of the merge


def columns_of(shards: Iterable[OutcomeRow]) -> Columns:
    """The columns of all shards, joined in their order."""
    joined: Columns = {}
    for shard in shards:
        for name, values in shard.columns.items():
            joined.setdefault(name, []).extend(values)
    return joined


@dataclass(frozen=True)
class Finished:
    """What a shard's finish completed: its evaluation, its job. Each is true for one shard only."""

    evaluation_done: bool
    job_done: bool


@dataclass(frozen=True)
class ArtifactRow:
    """A file of a job: size in bytes, path on the disk or share of the state."""

    job_id: str
    name: str
    path: str
    size: int
    sha256: str
    media_type: str
    created_at: float
    expired_at: float | None = None  # deletion for the job's age; None while the file is there


@dataclass(frozen=True)
class KeyRow:
    """An API key, without its secret and its hash. Times are unix seconds of the database's clock."""

    id: str
    name: str
    prefix: str  # public beginning of the key's text
    scopes: list[Scope]  # in the order of `contract.keys.SCOPES`
    tenant: str  # owner of jobs made with the key
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
