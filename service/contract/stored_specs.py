"""Job specs as they are stored and sent, as types: JSON after validation, with every default filled in.

The service writes them; the store, the supervisors, the evaluator and the merge read them. `specs.py` has the
classes that check what users send, with the ranges of the values, and
`tests/service/contract/test_messages.py` holds the keys of both equal. A key is `NotRequired` when specs of
earlier versions, or specs without it, lack it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypedDict

from assay.service.contract.specs import Protocol
from assay.service.contract.weights_options import ChannelStatistics, Positions

# The parameters of a component by name: JSON that its schema in the catalog describes.
Params = Mapping[str, Any]
Device = Literal["auto", "cpu", "cuda"]
DTypeName = Literal["float32", "float64", "bfloat16", "float16"]


class ComponentReference(TypedDict):
    """A component of the catalog with every parameter: a data set, a recipe, a model without weights."""

    name: str
    params: Params


class WeightsReference(TypedDict, total=False):
    """Where weights come from; exactly one of `job`, `checkpoint` and `timm` is there.

    With `part` only the backbone is taken. `sha256` (of the file), `normalization` and `positions` belong to
    `checkpoint`; specs of earlier versions lack the last two.
    """

    job: str
    checkpoint: str
    timm: Literal[True]
    sha256: str | None
    normalization: ChannelStatistics | Literal["data"] | None
    positions: Positions | None
    part: Literal["backbone"]


class ModelReference(ComponentReference):
    """A model and its weights; None for random ones."""

    weights: WeightsReference | None


class DeviceChoice(TypedDict):
    """The device class that a job asks for, and how many of them; specs of earlier versions say one."""

    device: Device
    devices: NotRequired[int]


class Execution(DeviceChoice):
    """How a job runs; `batch_size` is in examples. Specs of earlier versions know no `screening`."""

    dtype: DTypeName
    batch_size: int | Literal["auto"]
    screening: NotRequired[Literal["bfloat16"] | None]


class EvaluationItem(ComponentReference):
    """An evaluation or an attack of a job; `data` is None where it uses the job's data set."""

    data: ComponentReference | None


class LeftOutPart(TypedDict):
    """A part of a suite that was not asked for, and the reason."""

    suite: str
    part: str
    reason: str


class CommonSpec(TypedDict):
    """What all specs have. `timeout_seconds` limits an attempt; a higher `priority` (0 to 9) runs first."""

    name: str
    seed: int
    tags: list[str]
    priority: int
    timeout_seconds: int | None
    model: ModelReference


class TrainJobSpec(CommonSpec):
    """Training: what the service stores and a train request carries."""

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
    """The spec of a job that a user has asked for: a check has no results, and users do not see it."""
    assert spec["kind"] != "check"
    return spec
