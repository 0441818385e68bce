"""Types of evaluator results in the database: JSON of the columns plan, payload and verdict.

The evaluator writes them; the store, other shards and the merge read them. A key is `NotRequired` when some
jobs, or rows of earlier versions, lack it; with `total=False` all keys are. Times are in seconds.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from assay.service.contract.findings.data_findings import DataFound, DoubtfulData
from assay.service.contract.findings.evidence import (
    CaptureEvidence,
    CompileEvidence,
    Counts,
    FutureLeak,
    GradientEvidence,
    InactivePursuit,
    JudgementEvidence,
    ProbeEvidence,
    ReducedBatch,
    StageEvidence,
)
from assay.service.contract.fleet.worker_records import CodeProvenance, Repeated, Requirements, WorkerIdentity
from assay.service.contract.results import RowProtocol
from assay.service.contract.stored_specs import ComponentReference, Spec
from assay.service.contract.weights.options import ChannelStatistics

Columns = dict[str, list[Any]]  # A shard's rows by column: equally long lists, a value an example.


# --- Plans: written by the plan shard, read by the evaluate shards and the merge. ---


class AssumedNormalization(ChannelStatistics):
    """The normalisation of the data set `data`, used for weights without a normalisation."""

    data: str


class ForeignModel(TypedDict):
    """Another model, of a job or an upload, that an attack used, and the sha256 of its weights' content."""

    model: ComponentReference
    weights_sha256: str


class PlannedEvaluation(DoubtfulData):
    """The plan's findings about the data of an evaluation.

    `n` of the `available` examples are used, or n `repeats` of a machine measurement are made. `classes`
    is None for data without classes; a few classes have `class_names` that are no numbers. `known_as`
    names a well-known set, `published` counts the published examples where the number differs,
    `class_pixels` (K,) the training pixels of each class, for balanced losses. `seen`, `renamed` and
    `selected_on_test` are as in `Doubts`. `step_batch` is the batch of a training's steps where it is not
    the `published_batch`; `peak` its highest learning rate, scaled to that batch from the
    `published_peak`. `cut` counts examples longer than the model reads, `cut_in_training` such examples
    of the `training` set. `reduced_in_training` are the examples of its passes where memory was short,
    `unsaved_checkpoints` found no room. `constants` names the source of a corruption's constants.
    """

    n: int
    available: int
    classes: NotRequired[int | None]
    known_as: NotRequired[str]
    class_names: NotRequired[list[str]]
    published: NotRequired[int]
    repeats: NotRequired[int]
    class_pixels: NotRequired[list[int]]
    constants: NotRequired[str]
    seen: NotRequired[int]
    renamed: NotRequired[int]
    selected_on_test: NotRequired[int]
    published_batch: NotRequired[int]
    step_batch: NotRequired[int]
    asked_batch: NotRequired[int]
    peak: NotRequired[float]
    published_peak: NotRequired[float]
    cut: NotRequired[int]
    cut_in_training: NotRequired[int]
    training: NotRequired[int]
    reduced_in_training: NotRequired[ReducedBatch]
    unsaved_checkpoints: NotRequired[int]


class PulledOrigin(TypedDict):
    """Where pulled weights come from; `revision` is a commit, None where their source has none."""

    reference: str
    revision: str | None
    license: str | None
    sha256: str


class ModelJoin(TypedDict):
    """A model with names of its logits, matched by "name" or "number" or null for none, or a tokenizer."""

    labels_by: str | None
    labels: list[str]
    own_tokenizer: bool


COMPILE_SECONDS = 20.0  # To compile a pass, at least: 24, 32 on an AMD EPYC (`benchmarks.compiled`).
MAX_BATCH = {"cpu": 64, "cuda": 512}  # examples of an automatic batch, at most


class PlannedCompile(TypedDict):
    """The choice of `execution.compile: auto`, by a trial if there was any."""

    chosen: bool
    seconds: float | None  # of compiling
    ratio: float | None  # of a compiled pass's time to the model's own
    refused: str | None


class Plan(TypedDict):
    """Common input of all shards of a job; the job's row keeps it. Earlier versions have fewer keys.

    `batch_size` is in examples, `forward_flops` the operations of a forward pass per example, `image_size` in
    pixels (for text in tokens). `estimated_seconds` is the computing of all evaluations at the speed measured
    by the plan shard, `deadline_seconds` the time of a job without its user's timeout. `data_sha256` and
    `data_read`, of files and tables, are keyed by `results.data_label`, `sources` by what names them. The
    plan of a training lacks `image_size`, `forward_flops`, what is assumed or unstated. `example_bytes`, for
    evaluations: what the model keeps per example for its backward pass; `parameters`: its weights.
    `identity` is the identity of the worker that made the plan. `requirements` are digests of what the
    workers of each evaluation must have, empty for nothing; `stated` has their text where the share `repeat`
    of the shards is computed again.
    """

    identity: NotRequired[WorkerIdentity]
    device: str
    batch_size: int
    untrained: bool
    weights_sha256: str
    data_sha256: dict[str, str]
    data_read: NotRequired[dict[str, DataFound]]
    evaluations: list[PlannedEvaluation]
    image_size: NotRequired[int]
    forward_flops: NotRequired[float]
    example_bytes: NotRequired[int]
    parameters: NotRequired[int]
    estimated_seconds: NotRequired[float]
    compile: NotRequired[PlannedCompile]
    deadline_seconds: NotRequired[float]
    assumed_normalization: NotRequired[AssumedNormalization | None]
    unstated_vocabulary: NotRequired[bool]
    gradients_not_compared: NotRequired[bool]
    sources: NotRequired[dict[str, ForeignModel]]
    sources_not_compared: NotRequired[list[str]]
    requirements: NotRequired[list[str]]
    repeat: NotRequired[float]
    stated: NotRequired[dict[str, Requirements]]
    joined: NotRequired[ModelJoin | None]


class Replan(TypedDict):
    """A job was planned again `at` a time (ISO 8601 in UTC), for its `attempt`; `planned_by` as before."""

    at: str
    attempt: int
    planned_by: WorkerIdentity | None


class TrainingSpeed(TypedDict, total=False):
    """How fast a training is, and the shares of its GPU's time and memory in use, as last reported."""

    examples_per_second: float
    gpu_busy: float
    gpu_memory: float


class ShardRange(TypedDict):
    """Positions `start` to `stop` (excluded) of an evaluation's order; `cost` is in nominal seconds."""

    evaluation: int
    start: int
    stop: int
    cost: float


class PlannedShard(ShardRange):
    """A range with its number, unique within the job."""

    number: int


class PlanWithShards(Plan):
    """A plan as sent by the evaluator; the store turns `shards` into rows."""

    shards: list[PlannedShard]


# --- Outcomes: read by the merge. ---


class Evidence(Counts, ProbeEvidence, total=False):
    """Evidence for warnings and stages; counts of examples, which add up over shards.

    `gradients` counts the inspected first gradients. `screened` names the stages of an attack that ran in
    autocast, where it was asked for; shards of earlier versions do not say. Only `summarise` of an `analysis`
    reads its own facts.
    """

    gradients: int
    leaks_future: FutureLeak
    words: int
    unknown_words: int
    cut_texts: int
    swapped: int
    swapped_unknown: int
    reduced_batch: ReducedBatch
    screened: list[str]
    judgement: JudgementEvidence
    captured: CaptureEvidence
    compiled: CompileEvidence
    stages: list[StageEvidence]
    inactive_pursuit: InactivePursuit
    first_gradients: GradientEvidence


class DeviceProvenance(TypedDict):
    """The device class and its arithmetic; equal devices give equal bits."""

    type: str
    name: NotRequired[str]
    instruction_set: NotRequired[str | None]
    threads: NotRequired[int]
    dtype: NotRequired[str]
    tf32: NotRequired[bool]
    channels_last: NotRequired[bool]
    deterministic: NotRequired[bool]


class ShardProvenance(TypedDict):
    """Code, device and packages of a shard, `pulled` weights, and the version of its `draws`, 1 if absent."""

    code: CodeProvenance
    packages: dict[str, str]
    device: DeviceProvenance
    pulled: NotRequired[PulledOrigin]
    draws: NotRequired[int]


class ArtifactDescription(TypedDict):
    """A file written by a job, in the state folder: `size` in bytes."""

    name: str
    path: str
    size: int
    sha256: str
    media_type: str


class OutcomeExtra(TypedDict):
    """Input of the merge beside the rows.

    `protocol` is the row's, where it is not the job's: a shard ran under another protocol, or its data have
    no pixels. `analysis` names the analysis that was run, and a training brings its `plan`. `gallery` is a
    file of candidates for the evaluation's gallery, which the merge deletes.
    """

    attack: bool
    evidence: Evidence
    provenance: ShardProvenance
    protocol: NotRequired[RowProtocol]
    analysis: NotRequired[str]
    artifacts: NotRequired[list[ArtifactDescription]]
    gallery: NotRequired[ArtifactDescription]
    plan: NotRequired[Plan]


# --- Results: written by the merge, read by the API. ---

ResultJson = dict[str, Any]  # A class of `results.py`, or a part of it; its readers validate it.


class CapturedRun(TypedDict):
    """Replayed passes in so many `shards` `of` all attacks' shards, and why no more were captured."""

    replays: int
    shards: int
    of: int
    refused: NotRequired[list[str]]


class CompiledRun(TypedDict):
    """As `CapturedRun`, of compiled `passes`; the plan's `trial` where the job left the choice to it."""

    passes: int
    compilers: list[str]
    shards: int
    of: int
    refused: NotRequired[list[str]]
    trial: NotRequired[PlannedCompile]


class PreparedRuns(TypedDict, total=False):
    """What of the attacks ran `captured` and `compiled`, where the job asked for it."""

    captured: CapturedRun
    compiled: CompiledRun


class RunDevice(DeviceProvenance, PreparedRuns):
    """The device of a job's first shard, its `batch_size`, and all devices where they were `mixed`."""

    batch_size: int
    mixed: NotRequired[list[DeviceProvenance]]


class RunTimes(TypedDict):
    """When a job was made and started (ISO 8601 in UTC), and the seconds that its `shards` took together.

    `replans` says what had been planned before, where that was given up.
    """

    created_at: str | None
    started_at: str | None
    measured_seconds: float
    shards: int
    attempt: int
    replans: NotRequired[list[Replan]]


class JobProvenance(TypedDict):
    """`results.Provenance` as JSON."""

    spec: Spec
    seed: int
    draws: NotRequired[int]
    code: CodeProvenance
    packages: dict[str, str]
    device: RunDevice
    weights_sha256: str | None
    data_sha256: dict[str, str]
    data_read: NotRequired[dict[str, DataFound]]
    sources: NotRequired[dict[str, ForeignModel]]
    pulled: NotRequired[PulledOrigin | None]
    repeated: NotRequired[Repeated | None]
    trace_id: NotRequired[str | None]
    design: NotRequired[dict[str, str] | None]  # of answers alone: no worker knows it
    times: RunTimes


# --- Ends of jobs. ---


class ErrorRecord(TypedDict):
    """`results.JobError` as JSON: why a job failed."""

    type: str
    message: str
