"""Response types: the JSON of jobs, results, artifacts and lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FiniteFloat, model_validator

from assay.service.contract.specs import Protocol
from assay.service.contract.states import JobState
from assay.service.contract.summaries import JobSummary
from assay.service.contract.warning_codes import SEVERITY, Severity, WarningCode

Item = TypeVar("Item")
RowProtocol = Literal[Protocol, "language", "sequence", "series", "control"]
"""How a row was measured: `pixel` or `paper` for images, a word of the task where there are no pixels.

A `series` row is the worst case per example of standardised series, as `pixel` is of images; attacks in the
space of released code are `paper` for both. Results of earlier versions have `pixel` for all of them.
"""

Unit = Literal["proportion", "ratio", "seconds", "bytes", "count", "distance", "number"]
"""What a metric's value is measured in.

- proportion: a share in [0, 1].
- ratio: relative to a baseline, which has 1; people read both in percent.
- seconds, bytes.
- count: of passes, queries, parameters or operations; a mean of counts too.
- distance: a norm of a perturbation, over pixels in [0, 1].
- number: none of these; perplexities, logarithms, eigenvalues.
"""


class Answer(BaseModel):
    """Base of all answers."""

    model_config = ConfigDict(extra="forbid")


IntervalMethod = Literal[
    "wilson", "wilson_effective", "studentised", "t", "bca", "bootstrap", "order_statistics", "price_bonett",
    "tango", "tango_effective", "exact", "too_few", "no_spread", "none",
]  # fmt: skip
"""How a 95 % interval was found: `docs/statistics.md`."""


class Metric(Answer):
    """A measured value with its sample size and 95 % interval. Proportions are in [0, 1].

    `ci_low` and `ci_high` are null without a value, and where `ci_method` says that the examples are too few
    or do not differ. `value` is null when it is not finite; a warning then says why. `unit` is null where the
    evaluation's outcome table is not known, as after its package was removed.
    """

    value: float | None
    n: int
    ci_low: float | None
    ci_high: float | None
    ci_method: IntervalMethod
    higher_is_better: bool
    unit: Unit | None = None


class Warning(Answer):  # noqa: A001 (the contract's name)
    """A caveat about a number, with the evidence; `severity` is the code's, in old results too."""

    code: WarningCode
    severity: Severity = "caution"
    message: str
    evidence: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _with_severity(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("severity") is None:
            return {**given, "severity": SEVERITY.get(str(given.get("code")), "caution")}
        return given


class PartBreakdown(Answer):
    """Metrics of a part of an evaluation, by its name in tables and the facts that make it ({"class": 3})."""

    label: str
    keys: dict[str, str | int | FiniteFloat | bool | None]
    metrics: dict[str, Metric]


class Breakdown(Answer):
    """The metrics of a corruption at a severity; null means over all that were measured."""

    corruption: str | None
    severity: int | None
    metrics: dict[str, Metric]

    @property
    def label(self) -> str:
        """The part's name in tables."""
        name = "mean" if self.corruption is None else self.corruption
        return name if self.severity is None else f"{name}/{self.severity}"


class StageBreakdown(Answer):
    """Successes and cost of an attack in an ensemble.

    `top1` is the accuracy left after this stage and all before it, over all examples of the evaluation.
    `n` examples entered the stage; `broken` of them were broken in it. Where expected accuracy counts,
    `expected_top1` is there in its place, without an interval, and no example is broken. For segmentation:
    the unattacked images (`clean`) and each loss alone; `broken` of its `n` images have no right pixel left.
    """

    stage: str
    metrics: dict[str, Metric]
    n: int
    broken: int
    forward_passes: int
    backward_passes: int
    seconds: float

    @property
    def label(self) -> str:
        """The part's name in tables."""
        return self.stage


class LayerBreakdown(Answer):
    """Metrics of an analysis in one layer (from 0), or of a control with other values than the model's.

    `layer` is null for all layers together. `values` says which value matrix was used.
    """

    layer: int | None
    values: Literal["model", "random", "permuted"] = "model"
    metrics: dict[str, Metric]

    @property
    def label(self) -> str:
        """The part's name in tables."""
        control = [] if self.values == "model" else [self.values]
        return "/".join([*control, *([] if self.layer is None else [f"layer {self.layer}"])])


class PursuitBreakdown(Answer):
    """Metrics of `pursuit_check`: of a layer (from 0), of an iteration in it (from 1), or of an arm.

    `arm` names another setting than the model's own, `planted` a corruption of the images, or null.
    """

    layer: int | None
    iteration: int | None
    arm: str | None
    planted: str | None
    metrics: dict[str, Metric]

    @property
    def label(self) -> str:
        """The part's name in tables."""
        places = {"layer": self.layer, "iteration": self.iteration}
        known = [f"{name} {number}" for name, number in places.items() if number is not None]
        return "/".join([name for name in (self.arm, self.planted) if name is not None] + known)


class SmoothedBreakdown(Answer):
    """Metrics of the smoothed classifier at one noise level; at one certified L2 radius, null for none."""

    sigma: float
    radius: float | None
    metrics: dict[str, Metric]

    @property
    def label(self) -> str:
        """The part's name in tables."""
        level = f"sigma {self.sigma:g}"
        return level if self.radius is None else f"{level}/radius {self.radius:g}"


class CurveBreakdown(Answer):
    """A step of the curve of an attack that looks for the smallest perturbation: accuracy at this radius."""

    norm: str
    epsilon: float
    metrics: dict[str, Metric]

    @property
    def label(self) -> str:
        """The part's name in tables."""
        return f"{self.norm} {self.epsilon:.9g}"


AnyBreakdown = (  # First tables keep their forms, for stored results; others have `PartBreakdown`.
    Breakdown | StageBreakdown | LayerBreakdown | PursuitBreakdown | SmoothedBreakdown | CurveBreakdown
    | PartBreakdown
)  # fmt: skip


class Reference(Answer):
    """A published number for the same metric, with its source and protocol."""

    metric: str
    value: float
    source: str
    protocol: str


class EvaluationResult(Answer):
    """One row of the results: one evaluation or attack with its parameters, and `arithmetic` in words."""

    name: str
    params: dict[str, Any]
    data: dict[str, Any]
    protocol: RowProtocol
    backend: str
    arithmetic: str | None = None  # null where the job asked for plain float32 or float64
    metrics: dict[str, Metric]
    breakdown: list[AnyBreakdown] = []
    reference: list[Reference] = []
    warnings: list[Warning] = []
    seconds: float
    forward_passes: int
    backward_passes: int


def data_label(data: Mapping[str, Any]) -> str:
    """The key of a data set with every default in `Provenance.data_sha256`: its name, and any parameters."""
    params = ", ".join(f"{name}={value}" for name, value in sorted(data["params"].items()))
    return f"{data['name']}({params})" if params else str(data["name"])


class Source(Answer):
    """Another model that evaluations used: {"name", "params"}, and the hash of its weights' content."""

    model: dict[str, Any]
    weights_sha256: str


class Provenance(Answer):
    """Everything needed to repeat the numbers.

    `data_sha256` is keyed by `data_label`, and so is `data_read`: the `files` of a table with rows and lines,
    what was `ignored` beside images, the `crop_fraction` that applied where the job states none. `sources`
    is keyed by the id of the job that the model comes from, or by `checkpoint:NAME@SHA256` of the upload.
    `pulled` is the weights' reference, revision, license and sha256; null where they were not pulled.
    `repeated` counts the `shards` computed again: with `equal` bits, on `other_workers`, and `not_compared`
    by reason; null without any. `draws` is the version of random numbers. `design` is a registered design.
    """

    spec: dict[str, Any]
    seed: int
    draws: int = 1
    code: dict[str, Any]
    packages: dict[str, str]
    device: dict[str, Any]
    weights_sha256: str | None
    data_sha256: dict[str, str]
    data_read: dict[str, dict[str, Any]] = {}
    sources: dict[str, Source] = {}
    pulled: dict[str, str | None] | None = None
    repeated: dict[str, int | dict[str, int]] | None = None
    trace_id: str | None = None
    design: dict[str, str] | None = None
    times: dict[str, Any]


class Bracket(Answer):
    """Robust accuracy in one ball around the same examples, from below and from above.

    `verified` is the share that is verified at this or a larger radius, `attacked` the share that no attack
    at this or a smaller radius broke; null without such a row. `contradictions`: ids verified and broken.
    """

    data: str
    norm: str
    epsilon: float
    n: int
    verified: Metric | None
    attacked: Metric | None
    verified_by: list[str]
    attacked_by: list[str]
    contradictions: list[str] = []


class JobError(Answer):
    """Why a job failed."""

    type: str
    message: str


class Results(Answer):
    """The results of a job; `complete` is false while evaluations are missing.

    `bracket` has robust accuracy from below and from above where examples were both verified and attacked.
    `signature`: path of their signature; null while not complete. `headline`: what holds, or empty.
    """

    job: str
    complete: bool
    headline: str = ""
    evaluations: list[EvaluationResult]
    bracket: list[Bracket] = []
    warnings: list[Warning] = []
    error: JobError | None = None
    provenance: Provenance | None
    signature: str | None = None


class Progress(Answer):
    """Progress of a job, null where unknown; `share` in [0, 1] is of the planned cost, not of examples.

    Of a running training, as last reported: `examples_per_second`, and the shares in [0, 1] of its GPU's time
    (`gpu_busy`) and memory (`gpu_memory`) that are in use.
    """

    done: int
    total: int | None
    unit: Literal["examples", "steps"]
    eta_seconds: float | None
    share: float | None = None
    examples_per_second: float | None = None
    gpu_busy: float | None = None
    gpu_memory: float | None = None


class Links(Answer):
    """Where to go on."""

    self: str
    results: str
    events: str
    artifacts: str


class Job(Answer):
    """A job as `GET /jobs/{id}` shows it. Times are ISO 8601 in UTC.

    `study` is the id of the study that it is part of, null for a job of its own. `deadline` is when the
    attempt times out: so long after its start as the spec's `timeout_seconds`, else ten times its estimate,
    known once it is planned. The latter moves on while the job waits for a worker.
    """

    id: str
    kind: Literal["train", "evaluate"]
    name: str
    tags: list[str]
    state: JobState
    attempt: int
    created_at: str
    started_at: str | None
    finished_at: str | None
    deadline: str | None = None
    progress: Progress
    queue_position: int | None
    workers_online: int
    message: str
    error: JobError | None
    spec: dict[str, Any]
    study: str | None = None
    summary: JobSummary | None = None
    links: Links


class Artifact(Answer):
    """A file written by a job; an `expired` file was deleted because its job ended long ago."""

    name: str
    size: int
    sha256: str
    media_type: str
    created_at: str
    href: str
    expired: bool = False


class Page(Answer, Generic[Item]):
    """A page of a list; `next_cursor` is null on the last page."""

    items: list[Item]
    next_cursor: str | None = None
