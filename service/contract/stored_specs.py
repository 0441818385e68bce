"""Types of stored and sent job specs: JSON after validation, with every default filled in.

The service writes them; store, supervisors, evaluator and merge read them. `specs.py` has the classes for
user input, with ranges; a test keeps the keys equal. Optional and newer keys are `NotRequired`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from assay.service.contract.specs import Protocol
from assay.service.contract.weights.options import ChannelStatistics, Positions

Params = Mapping[str, Any]  # A component's parameters by name: JSON, by its schema in the catalog.
Device = Literal["auto", "cpu", "cuda"]
DTypeName = Literal["float32", "tf32", "float64", "bfloat16", "float16"]


class ComponentReference(TypedDict):
    """A component of the catalog with every parameter: a data set, a recipe, a model without weights."""

    name: str
    params: Params


class WeightsReference(TypedDict, total=False):
    """Source of weights; exactly one of `job`, `checkpoint` and `pulled` is present.

    With `part` only the backbone is used. `sha256` is the hash of the checkpoint's file, or of all pulled
    files; `normalization`, `positions` and `class_names` belong to `checkpoint`, not in specs of earlier
    versions, which have `timm` for the pulled weights of the model `timm`.
    """

    job: str
    checkpoint: str
    pulled: Literal[True]
    timm: Literal[True]
    sha256: str | None
    normalization: ChannelStatistics | Literal["data"] | None
    positions: Positions | None
    class_names: list[str]
    part: Literal["backbone"]


class ModelReference(ComponentReference):
    """A model and its weights; None for random weights."""

    weights: WeightsReference | None


class DeviceChoice(TypedDict):
    """The device class of a job, and the number of devices; specs of earlier versions have one device."""

    device: Device
    devices: NotRequired[int]


class Execution(DeviceChoice):
    """How a job runs; `batch_size` is in examples. Older specs lack `screening`."""

    dtype: DTypeName
    batch_size: int | Literal["auto"]
    screening: NotRequired[Literal["bfloat16", "bfloat16_gradients"] | None]
    repeat: NotRequired[float]
    capture: NotRequired[bool]
    channels_last: NotRequired[bool]
    compile: NotRequired[Literal["off", "auto", "on"]]


class EvaluationItem(ComponentReference):
    """An evaluation or an attack of a job; `data` is None where it uses the job's data set."""

    data: ComponentReference | None


class LeftOutPart(TypedDict):
    """A part left out of a suite, and the reason."""

    suite: str
    part: str
    reason: str


class CommonSpec(TypedDict):
    """Fields of all specs. `timeout_seconds` limits an attempt; a higher `priority` (0 to 9) runs first."""

    name: str
    seed: int
    tags: list[str]
    priority: int
    timeout_seconds: int | None
    model: ModelReference


class TrainJobSpec(CommonSpec):
    """Training, as stored by the service and carried by a train request."""

    kind: Literal["train"]
    data: ComponentReference
    execution: Execution
    recipe: ComponentReference


class EvaluateJobSpec(CommonSpec):
    """Evaluation, with its suites expanded. `limit` is in examples, None for all."""

    kind: Literal["evaluate"]
    data: ComponentReference
    execution: Execution
    protocol: Protocol
    limit: int | None
    save_adversarial: NotRequired[bool]
    save_traces: NotRequired[int]
    evaluations: list[EvaluationItem]
    left_out: NotRequired[list[LeftOutPart]]


class CheckJobSpec(CommonSpec):
    """The check of an uploaded checkpoint: made by the store, never by a user."""

    kind: Literal["check"]
    execution: DeviceChoice


UserSpec = TrainJobSpec | EvaluateJobSpec
Spec = UserSpec | CheckJobSpec


def evaluations_in(spec: Spec) -> list[EvaluationItem]:
    """The evaluations that a job names; empty for a training and for a check."""
    return spec["evaluations"] if spec["kind"] == "evaluate" else []


def parts_of(spec: UserSpec) -> list[tuple[str, ComponentReference]]:
    """The components that a job names beside its evaluations, each with its kind."""
    parts: list[tuple[str, ComponentReference]] = [("model", spec["model"]), ("data", spec["data"])]
    return [*parts, ("recipe", spec["recipe"])] if spec["kind"] == "train" else parts


def user_spec(spec: Spec) -> UserSpec:
    """The spec of a user's job: a check has no results, and users do not see it."""
    assert spec["kind"] != "check"
    return spec
