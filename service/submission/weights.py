"""Weights of jobs and checkpoints: whether they exist, and whether they fit the wanted model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from assay.service.catalog.catalog import Checked
from assay.service.catalog.component import Component
from assay.service.catalog.parameters import check
from assay.service.catalog.schema_text import Schema
from assay.service.contract.errors import NotFound
from assay.service.contract.problems import Loc, Problems
from assay.service.contract.stored_specs import ComponentReference, Params, Spec, TrainJobSpec
from assay.service.contract.weights.stored_checkpoints import CheckpointRow

DEAD_ENDS = ("failed", "canceled", "timed_out")
EXPIRED = "the weights of this job have expired: they were deleted because the job ended long ago"
LOC: Loc = ("model", "weights")


class JobLike(Protocol):
    """Interface: a job as a source of weights."""

    @property
    def kind(self) -> str:
        """As in `specs`: train or evaluate."""

    @property
    def state(self) -> str:
        """As in `states.JobState`."""

    @property
    def spec(self) -> Spec:
        """With every default filled in."""

    @property
    def expired(self) -> bool:
        """Whether its weights were deleted because it ended long ago."""


NO_GRADIENTS = "this exported program has no gradients by its pixels: rounding, a step or a cut hides them"
CHECKPOINT_PREFIX = "checkpoint:"  # Begins a parameter's name of another model that is an upload.
# Arithmetic that a program must run in: with gradients in bfloat16 alone it runs in float32 too.
RUN_IN = {"bfloat16_gradients": "bfloat16", "tf32": "float32"}

FindJob = Callable[[str], JobLike | None]
FindCheckpoint = Callable[[str], CheckpointRow | None]


@dataclass(frozen=True)
class WeightsSource:
    """The source of a model's weights."""

    model: ComponentReference  # {"name", "params"} of the model that they belong to
    data: ComponentReference | None  # {"name", "params"} of its training data; None: only `facts` known
    facts: Mapping[str, int]  # `classes`, `channels`, `image_size`, `length`, as far as the weights tell
    # Fields of a spec's `weights` on an uploaded file beside its name; empty for a job's weights
    stated: Mapping[str, Any] = field(default_factory=dict)
    foreign: bool = False  # Whether the file is known to have no normalisation of its own
    dtypes: Sequence[str] | None = None  # Of an exported program: allowed `execution.dtype`; None: all
    gradients: bool = True  # Whether the model has gradients by its inputs, as far as known
    task: str | None = None  # The task of an exported program; None where the model's own tasks hold


def find_source(
    model: Mapping[str, Any],
    problems: Problems,
    find_job: FindJob | None,
    find_checkpoint: FindCheckpoint | None,
) -> WeightsSource | None:
    """The source of a model's weights, if a job or a checkpoint; reports errors."""
    weights = model.get("weights") or {}
    if "checkpoint" in weights and find_checkpoint is not None:
        return _check_checkpoint(weights, problems, find_checkpoint)
    if "job" not in weights or find_job is None:
        return None
    spec = check_source(weights["job"], problems, (*LOC, "job"), find_job)
    return None if spec is None else WeightsSource(spec["model"], spec["data"], {})


def _check_checkpoint(
    weights: Mapping[str, Any], problems: Problems, find_checkpoint: FindCheckpoint
) -> WeightsSource | None:
    """An uploaded checkpoint as a source; while it is still being checked, its dependents wait."""
    loc = (*LOC, "checkpoint")
    name = weights["checkpoint"]
    if (checkpoint := _usable(find_checkpoint, name, name, problems, loc)) is None:
        return None
    wanted = weights.get("sha256")
    if wanted is not None and wanted != checkpoint.sha256:
        message = "the checkpoint of this name has another content"
        problems.add((*LOC, "sha256"), message, given=wanted, allowed=[checkpoint.sha256])
        return None
    for name, stated in checkpoint.reading.items():
        if weights.get(name) not in (None, stated):
            message = f"the checkpoint was uploaded with another {name}: it is part of the checkpoint"
            problems.add((*LOC, name), message, given=weights[name], allowed=[stated])
    stated = {"sha256": checkpoint.sha256, **checkpoint.reading}
    return WeightsSource(
        checkpoint.model,
        None,
        checkpoint.facts,
        stated,
        checkpoint.foreign,
        checkpoint.dtypes,
        checkpoint.gradients,
        checkpoint.task,
    )


def checkpoint_named(value: str) -> tuple[str, str | None] | None:
    """The name and the hash in `checkpoint:NAME[@SHA256]`; None for the id of a job."""
    if not value.startswith(CHECKPOINT_PREFIX):
        return None
    name, _, sha256 = value.removeprefix(CHECKPOINT_PREFIX).partition("@")
    return name, sha256 or None


def _usable(
    find: FindCheckpoint, name: str, given: str, problems: Problems, loc: Loc
) -> CheckpointRow | None:
    checkpoint, near = None, None
    try:
        checkpoint = find(name)
    except NotFound as error:
        near = error.details[0].nearest
    if checkpoint is None:
        allowed = "the name of an uploaded checkpoint: GET /api/v1/checkpoints lists them"
        near = near and given.replace(name, near, 1)
        problems.add(loc, "there is no such checkpoint", given=given, allowed=allowed, nearest=near)
    elif checkpoint.state == "rejected":
        problems.add(loc, f"this checkpoint was rejected: {checkpoint.reason}", given=given)
        return None
    return checkpoint


def check_other_checkpoint(
    given: str,
    dtype: str,
    tasks: Sequence[str],
    problems: Problems,
    loc: Loc,
    find_checkpoint: FindCheckpoint,
) -> tuple[str, CheckpointRow] | None:
    """The upload named as another model of an attack, pinned to its content, or None; reports errors."""
    named = checkpoint_named(given)
    assert named is not None
    name, sha256 = named
    if (checkpoint := _usable(find_checkpoint, name, given, problems, loc)) is None:
        return None
    pinned = f"{CHECKPOINT_PREFIX}{name}@{checkpoint.sha256}"
    if sha256 not in (None, checkpoint.sha256):
        problems.add(loc, "the checkpoint of this name has another content", given=given, allowed=[pinned])
    elif checkpoint.dtypes is not None and RUN_IN.get(dtype, dtype) not in checkpoint.dtypes:
        message = f"the exported program cannot be run in {dtype}, the arithmetic of this job"
        problems.add(loc, message, given=given, allowed=f"a model that can be run in {dtype}")
    elif checkpoint.task is not None and checkpoint.task not in tasks:
        message = f"the exported program is for {checkpoint.task}"
        problems.add(loc, message, given=given, allowed=f"a model for {' or '.join(tasks)}")
    elif not checkpoint.gradients:
        problems.add(loc, NO_GRADIENTS, given=given, allowed="a model with gradients by its pixels")
    elif checkpoint.foreign and checkpoint.reading["normalization"] is None:
        message = "this checkpoint was uploaded without a normalization, which an attack from it needs"
        problems.add(loc, message, given=given, allowed="a checkpoint uploaded with ?normalization=")
    else:
        return pinned, checkpoint
    return None


def check_exported(
    job: Mapping[str, Any], programs: str | None, source: WeightsSource | None, problems: Problems
) -> None:
    """Report what an exported program (the model `programs`) cannot do: training, no file, some dtypes."""
    model, execution = (
        part if isinstance(part := job.get(name), dict) else {} for name in ("model", "execution")
    )
    own = programs is not None and model.get("name") == programs
    if own and job.get("kind") == "train":
        message = "an exported program cannot be trained: its graph is for evaluation"
        problems.add(("model", "name"), message, given=programs)
    elif own and "checkpoint" not in (model.get("weights") or {}):
        message = f"the model {programs!r} is an uploaded program: its weights must be a checkpoint"
        allowed = '{"checkpoint": name}; POST /api/v1/checkpoints?name= takes the .pt2 file'
        problems.add(LOC, message, given=model.get("weights"), allowed=allowed)
    elif own and execution.get("channels_last"):
        message = "an exported program fixes the order of its values in memory"
        problems.add(("execution", "channels_last"), message, given=True, allowed=[False])
    known = source.dtypes if source is not None else None
    for name in ("dtype", "screening"):
        given = execution.get(name)
        needed = RUN_IN.get(given, given) if isinstance(given, str) else given
        if known is not None and given is not None and needed not in known:
            message = f"the exported program cannot be run in {given}"
            choices = list(known) if name == "dtype" else [None]
            problems.add(("execution", name), message, given=given, allowed=choices)


def check_source(given: str, problems: Problems, loc: Loc, find_job: FindJob) -> TrainJobSpec | None:
    """The spec of the training job, ended or not, that a field names; None after reporting errors."""
    job = find_job(given)
    complaint = _complaint(job)
    if job is None or complaint is not None:
        allowed = "the id of a training job that has its weights, or has not ended"
        problems.add(loc, complaint or "", given=given, allowed=allowed)
        return None
    return cast(TrainJobSpec, job.spec)


def _complaint(job: JobLike | None) -> str | None:
    if job is None:
        return "there is no such job"
    if job.kind != "train":
        return f"this job is of kind {job.kind}: it leaves no weights"
    if job.state in DEAD_ENDS:
        return f"this job is {job.state!s}: it leaves no weights"
    return EXPIRED if job.expired else None


def check_same_model(model: Checked, trained: ComponentReference, problems: Problems) -> None:
    """Report differences between a model and the trained one: its weights fit no other."""
    component = model.component
    if component.name != trained["name"]:
        message = f"the weights are of the model {trained['name']!r}"
        problems.add(("model", "name"), message, given=component.name, allowed=[trained["name"]])
        return
    check_same_params(component, model.params, trained["params"], problems, ("model",))


def check_same_params(
    component: Component,
    params: Params,
    trained: Params,
    problems: Problems,
    loc: Loc,
    *,
    free: Collection[str] = (),
) -> None:
    """Report every parameter that differs from the trained model's."""
    # Parameters that are newer than the training job had their defaults in it.
    wanted = check(component.parameters, dict(trained), Problems(), component=_trusted)
    for name, value in params.items():
        if name in wanted and wanted[name] != value and name not in free:
            message = f"the weights are of a model with {name} {wanted[name]}"
            problems.add((*loc, "params", name), message, given=value, allowed=[wanted[name]])


def _trusted(schema: Schema, value: object, loc: Loc, problems: Problems) -> object:
    return value
