"""Studies: arms x seeds x evaluations as one thing. The JSON of `POST /api/v1/studies` and of its answers.

These classes check shape and types only; `service.studies.submission` checks the rest, as of jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field

from assay.service.contract.results import Answer
from assay.service.contract.specs import (
    DataSpec,
    EvaluationSpec,
    ExecutionSpec,
    ModelSpec,
    Protocol,
    RecipeSpec,
    Seed,
    Spec,
    SuiteSpec,
    Tag,
    WeightsFromCheckpoint,
    WeightsFromJob,
    WeightsFromPull,
    WeightsFromTimm,
)
from assay.service.contract.states import JobState
from assay.service.contract.stored_specs import EvaluateJobSpec, TrainJobSpec
from assay.service.metrics.statistics.anytime_t import FIRST
from assay.service.metrics.statistics.multiple_tests import Adjustment
from assay.service.studies.designs.wire import StudyFixing

MAX_ARMS = 20
MAX_JOBS = 1000  # Jobs of a study, in all its arms and seeds.
MAX_SEEDS = MAX_JOBS // 2
MAX_LOOKED_AT = 100  # Seeds of a study with `until`: its level is simulated up to so many.
OWN_TRAINING = "0" * 26  # Stands for the training of an arm, which has no id before it is stored.

Role = Literal["train", "evaluate"]
Claim = Literal["difference", "not_worse", "equivalent"]
ExtensionState = Literal["open", "precise", "max_seeds", "canceled", "failed"]
RunState = JobState | Literal["deleted"]  # The state of a job of a study, which may have been deleted since.
ArmName = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f\x7f]+$")]
Seeds = Annotated[list[Seed], Field(min_length=1, max_length=MAX_SEEDS)]


class ArmSpec(Spec):
    """A model that is compared with others, and the recipe and the data that train it.

    Missing `data` and `recipe` come from the study. An arm with `weights` and without a recipe of its own
    is not trained: it has one set of weights, and its seeds are for the evaluations alone. With a recipe
    of its own, training starts from the weights.
    """

    name: ArmName
    model: ModelSpec
    weights: Annotated[
        WeightsFromJob | WeightsFromCheckpoint | WeightsFromPull | WeightsFromTimm | None,
        Field(description="the same as in `model`"),
    ] = None
    data: DataSpec | None = None
    recipe: RecipeSpec | None = None


class PrimarySpec(Spec):
    """The question that a study is made for: an arm against the baseline in a metric of an evaluation.

    It is stored with the study, so before the study's jobs run. Its test is alone; the p-values of the other
    tests are adjusted among themselves.
    """

    evaluation: Annotated[str, Field(min_length=1, max_length=100, description="its name")]
    params: Annotated[
        dict[str, Any], Field(description="parameters that tell it from others of its name")
    ] = {}  # noqa: RUF012
    data: Annotated[DataSpec | None, Field(description="data set that tells it from others")] = None
    metric: Annotated[
        str | None, Field(max_length=100, description="default: the first of the evaluation")
    ] = None
    arm: Annotated[ArmName | None, Field(description="default: the only arm beside the baseline")] = None
    claim: Annotated[
        Claim,
        Field(
            description="`difference`: the arms differ (two-sided, 5 %); `not_worse`: the arm is not worse by"
            " `margin` or more (one-sided, 2.5 %); `equivalent`: the arms differ by less than `margin` (two"
            " one-sided tests, 5 %)"
        ),
    ] = "difference"
    margin: Annotated[
        float | None,
        Field(gt=0, description="of `not_worse` and `equivalent`, in the metric's unit: 0.01 is a point"),
    ] = None


class UntilSpec(Spec):
    """Seeds are added until the primary question's interval is narrow enough.

    The service looks when all jobs have succeeded, and adds `step` seeds. Intervals and p-values of the study
    are anytime-valid: they hold at all looks at once.
    """

    width: Annotated[
        float, Field(gt=0, description="of the 95 % interval, in the metric's unit: 0.02 is 2 points")
    ]
    max_seeds: Annotated[int, Field(ge=FIRST, le=MAX_LOOKED_AT)] = 20
    step: Annotated[int, Field(ge=1, le=20, description="seeds that are added at a time")] = 1


class StudySpec(Spec):
    """Arms x seeds x evaluations. `data`, `recipe` and `execution` are for all arms.

    `devices` is for trainings alone, `screening`, `repeat`, `capture`, `channels_last` and `compile` for
    evaluations; a model trained in `float16` or `recipe` is measured in float32.
    """

    kind: Literal["study"]
    name: Annotated[str, Field(max_length=100)] = ""
    tags: Annotated[list[Tag], Field(max_length=32)] = []  # noqa: RUF012
    priority: Annotated[int, Field(ge=0, le=9, description="9 runs first")] = 5
    timeout_seconds: Annotated[int | None, Field(ge=1, le=30 * 86400, description="of each of its jobs")] = (
        None
    )
    arms: Annotated[list[ArmSpec], Field(min_length=1, max_length=MAX_ARMS)]
    data: DataSpec | None = None
    recipe: RecipeSpec | None = None
    seeds: Annotated[
        Seeds | Annotated[int, Field(ge=1, le=MAX_SEEDS)],
        Field(description="the seeds, or their number: 3 is [0, 1, 2]"),
    ]
    protocol: Protocol = "pixel"
    limit: Annotated[int, Field(ge=1)] | None = None
    evaluations: Annotated[list[EvaluationSpec | SuiteSpec], Field(min_length=1, max_length=500)]
    execution: ExecutionSpec = ExecutionSpec()
    baseline: Annotated[ArmName | None, Field(description="the arm that others are compared with")] = None
    adjust: Annotated[Adjustment, Field(description="of the p-values, for their number")] = "holm"
    primary: Annotated[
        PrimarySpec | None, Field(description="the one question, whose test is not adjusted")
    ] = None
    until: Annotated[
        UntilSpec | None, Field(description="adds seeds until the primary question is precisely answered")
    ] = None
    metrics: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]] | None,
        Field(
            max_length=50,
            description="the metrics that are tested (default: the first of each evaluation); the adjustment"
            " is for these, and the others get intervals without p",
        ),
    ] = None


class MoreSeeds(Spec):
    """The body of `POST /studies/{id}/seeds`."""

    seeds: Seeds


class ArmTemplate(TypedDict):
    """The jobs of an arm, as stored, with seed 0; `train` is None for an arm that is not trained.

    `evaluate` of a trained arm has weights of the job `OWN_TRAINING`.
    """

    name: str
    train: TrainJobSpec | None
    evaluate: EvaluateJobSpec


class ArmRun(Answer):
    """An arm with one seed; `train` is null without training; a `shared` one is also an earlier arm's."""

    seed: int
    train: str | None
    train_state: RunState | None
    evaluate: str
    evaluate_state: RunState
    shared: bool = False


class StudyArm(Answer):
    """An arm with its jobs. Without `trained` its seeds are for the evaluations alone."""

    name: str
    trained: bool
    runs: list[ArmRun]


class StudyLook(Answer):
    """The primary question's interval when the service looked; its ends are null with too few seeds."""

    seeds: int
    ci_low: float | None
    ci_high: float | None


class StudyUntil(Answer):
    """How far the extension of a study is.

    `state`: `open` while seeds may be added; `precise`, `max_seeds`, `canceled` and `failed` say why none is
    added any more. `text` says the same in words, with the reason.
    """

    width: float
    max_seeds: int
    step: int
    state: ExtensionState
    looks: list[StudyLook]
    text: str


class StudyProgress(Answer):
    """`done` of the `total` jobs have succeeded; `share`, in [0, 1], also counts what is done of others."""

    done: int
    total: int
    share: float


class StudyLinks(Answer):
    """Where to go on."""

    self: str
    results: str


class StudySummary(Answer):
    """A study in a list. `state` follows from the states of its jobs, which `jobs` counts.

    `queued` until a job has started, `running` until all have ended and, if all have succeeded, no seed is
    to be added; then `succeeded` if all have, `failed` if a job failed, timed out or was deleted, else
    `canceled`.
    """

    id: str
    kind: Literal["study"] = "study"
    name: str
    tags: list[str]
    state: JobState
    created_at: str
    arms: list[str]
    seeds: list[int]
    jobs: dict[str, int]
    links: StudyLinks


class StudyStatus(StudySummary):
    """A study with its jobs. `message` says what keeps it from its end; `spec` has every default.

    `fixing` says when its design was fixed; null for studies of earlier versions.
    """

    progress: StudyProgress
    message: str
    notes: list[str]
    runs: list[StudyArm]
    until: StudyUntil | None = None
    spec: dict[str, Any]
    fixing: StudyFixing | None = None


GUESS = "not measured yet:"  # how a note on guessed seconds begins


class ArmEstimate(Answer):
    """Jobs of an arm, and the estimated seconds of each: null where unknown, or for an arm without training.

    Earlier arms have `shared` of its trainings, too. Passes are forward and backward, of each job; a set of
    unknown size counts as the published set.
    """

    name: str
    trained: bool
    jobs: int
    shared: int
    train_seconds: float | None
    evaluate_seconds: float | None
    train: dict[str, Any] | None
    evaluate: dict[str, Any]
    warnings: list[Any]
    train_passes: tuple[int, int] | None = None
    evaluate_passes: tuple[int, int] | None = None


class StudyDryRun(Answer):
    """What a study would be: its jobs and their estimated work; nothing is stored.

    `seconds` of computing are for all jobs one after another; null where the seconds of a job are unknown.
    """

    spec: dict[str, Any]
    jobs: int
    trainings: int
    evaluations: int
    seconds: float | None
    arms: list[ArmEstimate]
    notes: list[str]


ONE_SEED = (
    "one seed: every comparison is of weights, not of methods, and has no p-value for methods; POST"
    " /api/v1/studies/{id}/seeds adds seeds"
)


def notes_of(arms: Sequence[tuple[str, bool]], seeds: int) -> list[str]:
    """What a study cannot say, in words; an arm is its name, and whether it is trained."""
    notes = [ONE_SEED] if seeds == 1 else []
    for name, trained in arms:
        if not trained:
            notes.append(
                f"arm {name!r} is not trained: it has one set of weights, and its seeds are for the"
                " evaluations alone; comparisons with it are of these weights, not of a method"
            )
    return notes
