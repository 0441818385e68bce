"""The messages between supervisor and evaluator, as types: JSON lines on the evaluator's two pipes.

    supervisor  EvaluatorRequest -> evaluator       one at a time
    evaluator   EvaluatorReport ->  supervisor      progress and checkpoints, then one FinalReport
    rank        RankReport ->       evaluator       the same for training on several devices

Their contents are stored too: `stored_specs.py` and `records.py`. `workers/supervision/reports.py` checks
each report by them, a test compares them with real messages. Times are in seconds.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

from assay.service.contract.findings.evidence import ReducedBatch
from assay.service.contract.findings.verdict_records import VerdictRecord
from assay.service.contract.fleet.worker_records import GpuMemory, SelfTestRecord
from assay.service.contract.records import Columns, OutcomeExtra, Plan, PlanWithShards
from assay.service.contract.stored_specs import CheckJobSpec, EvaluateJobSpec, TrainJobSpec

# --- Requests: from `supervision/shard_run.py` to `jobs/*.run`. ---


class ModelSource(TypedDict):
    """Another model that an evaluation uses, and the path of its weights.

    `spec` is of its training job, or for an uploaded model this job's with the other model in it.
    """

    spec: TrainJobSpec | EvaluateJobSpec
    weights: str


class RequestBase(TypedDict):
    """Fields of all requests.

    `evaluation`, `start` and `stop` are the claim's range (0 except for evaluate shards), `folder` is the
    job's, `weights` the path of the weights that the model starts from, None where they come from no file.
    `sources` are other models as parameters name them, `cores` the processor cores that the shard may use.
    `data_sha256` has the hashes of data sets that the worker knows, by label. `ticket` numbers the requests
    to one evaluator, `report_bytes` is the most that one report to it has.
    """

    job: str
    evaluation: int
    start: int
    stop: int
    folder: str
    weights: str | None
    sources: NotRequired[dict[str, ModelSource]]
    data_sha256: NotRequired[dict[str, str]]
    shard_seconds: float
    checkpoint_seconds: float
    cores: int
    ticket: NotRequired[int]
    report_bytes: NotRequired[int]


class PlanRequest(RequestBase):
    """Cut the evaluations into shards of about `shard_seconds`."""

    kind: Literal["plan"]
    spec: EvaluateJobSpec
    plan: None


class TrainRequest(RequestBase):
    """Train, with a checkpoint every `checkpoint_seconds`; without a timeout for `deadline_seconds`."""

    kind: Literal["train"]
    spec: TrainJobSpec
    plan: None
    deadline_seconds: NotRequired[float | None]


class EvaluateRequest(RequestBase):
    """Measure the examples from `start` to `stop` of an evaluation."""

    kind: Literal["evaluate"]
    spec: EvaluateJobSpec
    plan: Plan


class CheckRequest(RequestBase):
    """Compare an uploaded file with its model."""

    kind: Literal["check"]
    spec: CheckJobSpec
    plan: None


ShardRequest = PlanRequest | TrainRequest | EvaluateRequest | CheckRequest


def runs_compiled(request: EvaluateRequest) -> bool:
    """Whether attacks run compiled passes, by the job or its plan."""
    asked, tried = request["spec"]["execution"].get("compile"), request["plan"].get("compile")
    return asked == "on" or (asked == "auto" and tried is not None and tried["chosen"])


class SelfTestRequest(TypedDict):
    """Test the devices of these classes, for no job: `folder` is empty, the test's own is temporary."""

    kind: Literal["self_test"]
    folder: str
    weights: None
    device_classes: list[str]
    ticket: NotRequired[int]
    report_bytes: NotRequired[int]


class HashRequest(TypedDict):
    """Hash some evaluations' data sets, by index, with no tenant's program beside, so jobs trust the hash."""

    kind: Literal["hash"]
    folder: str
    weights: None
    spec: EvaluateJobSpec
    evaluations: list[int]
    ticket: NotRequired[int]
    report_bytes: NotRequired[int]


EvaluatorRequest = ShardRequest | SelfTestRequest | HashRequest


# --- Reports on the way. ---


class ProgressReport(TypedDict):
    """Examples done (steps of a training, evaluations of a plan), at most twice a second, or `at_once`."""

    type: Literal["progress"]
    done: int
    total: int
    message: str
    at_once: NotRequired[bool]  # the next report may be long in coming
    examples_per_second: NotRequired[float]  # of a training since the report before; 0 at first
    gpu: NotRequired[GpuMemory]


class CheckpointReport(TypedDict):
    """A training checkpoint is on disk."""

    type: Literal["checkpoint"]
    step: int


# --- Answers: the last report of a request. ---


class PlanReport(TypedDict):
    """Answers a plan request."""

    type: Literal["plan"]
    plan: PlanWithShards


class Measurement(TypedDict):
    """The rows of a shard (`n` examples) and their cost."""

    type: Literal["outcome"]
    n: int
    columns: Columns
    seconds: float
    forward_passes: int
    backward_passes: int


class OutcomeReport(Measurement):
    """Answers an evaluate or a train request."""

    extra: OutcomeExtra


class CheckedReport(TypedDict):
    """Answers a check request; `error` says why the file is rejected, None for an accepted file."""

    type: Literal["checked"]
    verdict: VerdictRecord
    error: str | None


class Failure(TypedDict):
    """Why a shard failed, and whether a retry could help; `error_type` is for programs.

    Where the error has a `fingerprint`, a shard that fails with the same fingerprint twice is not retried.
    """

    error_type: str
    message: str
    retry: bool
    fingerprint: NotRequired[str]


class ErrorReport(Failure):
    """Answers any request that failed."""

    type: Literal["error"]
    traceback: NotRequired[str]


class SelfTestReport(SelfTestRecord):
    """Answers a self-test."""

    type: Literal["self_tested"]


class HashReport(TypedDict):
    """Answers a hash request: the sha256 of each data set's content, by label."""

    type: Literal["hashed"]
    data_sha256: dict[str, str]


FinalReport = PlanReport | OutcomeReport | CheckedReport | ErrorReport
EvaluatorReport = ProgressReport | CheckpointReport | FinalReport | SelfTestReport | HashReport


# --- A training on several devices: from `training/distributed/rank.py` to `launch.py`. ---


class TrainedRecord(TypedDict):
    """`training.result.Trained` with its paths as text."""

    steps: int
    batch_size: int
    epochs: int
    final_loss: float
    log_path: str
    curves_path: str
    weights_path: str
    average_path: str | None
    at_once: int
    selected_step: int | None
    reduced: ReducedBatch | None
    unsaved: int


class TrainedReport(TypedDict):
    """The first process has trained to the end."""

    type: Literal["trained"]
    outcome: TrainedRecord


class RankFailure(TypedDict):
    """The file of a process that failed; `time` is in nanoseconds of the machine's monotonic clock."""

    time: int
    failure: Failure


RankReport = ProgressReport | CheckpointReport | TrainedReport
