"""Job specs by shape and types: the JSON body of `POST /api/v1/jobs`; `service.catalog` checks the rest."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    TypeAdapter,
    field_validator,
    model_serializer,
    model_validator,
)

from assay.service.contract.weights.options import Normalization, Positions

Name = Annotated[str, Field(min_length=1, max_length=200)]
MAX_TAG, MAX_TAGS = 64, 32
Tag = Annotated[str, Field(min_length=1, max_length=MAX_TAG)]
Tags = Annotated[list[Tag], Field(max_length=MAX_TAGS)]
Parameters = dict[str, Any]
Protocol = Literal["pixel", "paper"]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Spec(BaseModel):
    """Base of all parts: unknown fields are refused, values are not coerced."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SparseSpec(Spec):
    """Base of parts whose `sparse` fields are written only with a value."""

    sparse: ClassVar[tuple[str, ...]]

    @model_serializer(mode="wrap")
    def _without_nothing(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = dump(self)
        return {
            key: value for key, value in written.items() if key not in self.sparse or value not in (None, [])
        }


class WeightsOfModel(SparseSpec):
    """Weights of a whole model, or with `part` of its backbone, for training another model around it."""

    sparse = ("part", "class_names")

    part: Annotated[Literal["backbone"] | None, Field(description="of training alone: what is taken")] = None


class WeightsFromJob(WeightsOfModel):
    """The final weights of a training job; the job that uses them waits for it."""

    job: Name


class WeightsFromCheckpoint(WeightsOfModel):
    """Weights uploaded under this name; submission fills in the other fields.

    `sha256` is the file's; `normalization`, `positions` and `class_names` (of logits) the upload's.
    """

    checkpoint: Name
    sha256: Annotated[str, Field(min_length=64, max_length=64)] | None = None
    normalization: Normalization | Literal["data"] | None = None
    positions: Positions | None = None
    class_names: Annotated[list[Name], Field(min_length=2, max_length=100_000)] | None = None


class WeightsFromPull(Spec):
    """Weights that `assay pull` fetched, by the model's parameters; submission adds the files' `sha256`."""

    pulled: Literal[True]
    sha256: Annotated[str, Field(min_length=64, max_length=64)] | None = None


class WeightsFromTimm(Spec):
    """The older spelling of `{"pulled": true}` for the model `timm`; submission replaces it."""

    timm: Literal[True]


class ModelSpec(Spec):
    """A model by catalog name, its parameters, and where its weights come from (absent: random)."""

    name: Name
    params: Parameters = {}
    weights: WeightsFromJob | WeightsFromCheckpoint | WeightsFromPull | WeightsFromTimm | None = None


class DataSpec(Spec):
    """A data set by catalog name."""

    name: Name
    params: Parameters = {}


class RecipeSpec(Spec):
    """A training recipe by catalog name."""

    name: Name
    params: Parameters = {}


class EvaluationSpec(Spec):
    """An evaluation or an attack by catalog name; it may bring its own data set."""

    name: Name
    params: Parameters = {}
    data: DataSpec | None = None


class SuiteSpec(Spec):
    """A named list of evaluations; it is replaced by that list at submission."""

    suite: Name


class LeftOut(Spec):
    """An evaluation left out of a suite, because it does not fit the model or the data."""

    suite: Name
    part: Annotated[str, Field(max_length=1000)]
    reason: Annotated[str, Field(max_length=20_000)]


class ExecutionSpec(SparseSpec):
    """How to run: device class, arithmetic, and examples per batch.

    `screening` "bfloat16" runs each attack in bfloat16 first, then in `dtype` on the examples left; every
    adversarial example is confirmed without autocast, so accuracy can only be lower. "bfloat16_gradients"
    runs each attack once, with gradients in bfloat16; iterates nearer to the boundary than a measured bound
    of its error are judged in `dtype`. `dtype` "bfloat16" gives clean answers in it and runs attacks in this
    way, judged in float32. `tf32` lets a GPU round the factors of the model's products and convolutions.
    For training alone: `float16`; `recipe`, the arithmetic of the published training, or float32; `devices`,
    so many GPUs in one machine (or processes on the CPU), which share every batch. The trained model is
    measured in float32.
    For evaluations: `repeat`, the share of the shards that another worker computes again, where other bits
    fail the job; null is the service's share. `channels_last`: weights of convolutions have their channels
    last in memory. `capture`: on GPUs attacks replay passes as CUDA graphs where these give the model's bits.
    `compile`: attacks run compiled passes, "auto" where a trial of the plan says that it pays; the model's
    own passes confirm every success. False and "off" are stored as null.
    """

    sparse = ("repeat", "capture", "channels_last", "compile")

    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "tf32", "float64", "bfloat16", "float16", "recipe"] = "float32"
    batch_size: Annotated[int, Field(ge=1, le=65536)] | Literal["auto"] = "auto"
    screening: Literal["bfloat16", "bfloat16_gradients"] | None = None
    devices: Annotated[int, Field(ge=1, le=64)] = 1
    repeat: Annotated[float, Field(ge=0, le=1)] | None = None
    capture: bool | None = None
    channels_last: bool | None = None
    compile: Literal["off", "auto", "on"] | None = None

    @field_validator("capture", "channels_last", "compile")
    @classmethod
    def _nothing_said(cls, given: bool | str | None) -> bool | str | None:
        return None if given in (False, "off") else given


class JobSpecBase(Spec):
    """Fields of both kinds of job."""

    name: Annotated[str, Field(max_length=200)] = ""
    seed: Seed = 0
    tags: Tags = []
    priority: Annotated[int, Field(ge=0, le=9, description="9 runs first")] = 5
    timeout_seconds: Annotated[int, Field(ge=1, le=30 * 86400)] | None = None
    model: ModelSpec
    data: DataSpec
    execution: ExecutionSpec = ExecutionSpec()

    @field_validator("tags")
    @classmethod
    def _no_duplicate_tags(cls, tags: list[str]) -> list[str]:
        return list(dict.fromkeys(tags))


class TrainSpec(JobSpecBase):
    """Train a model from random or given weights."""

    kind: Literal["train"]
    recipe: RecipeSpec


class EvaluateSpec(JobSpecBase, SparseSpec):
    """Evaluate a model: a list of evaluations, attacks and suites over one data set."""

    sparse = ("left_out", "save_traces")

    kind: Literal["evaluate"]
    protocol: Protocol = "pixel"
    limit: Annotated[int, Field(ge=1)] | None = None
    save_adversarial: Annotated[bool, Field(description="adversarial examples become artifacts")] = False
    save_traces: Annotated[
        Annotated[int, Field(ge=0, le=32)] | None,
        Field(description="gradient attacks' steps on so many first examples become artifacts"),
    ] = None
    evaluations: Annotated[list[EvaluationSpec | SuiteSpec], Field(min_length=1, max_length=500)]
    left_out: Annotated[
        list[LeftOut], Field(max_length=500, description="filled in where suites are expanded")
    ] = []

    @field_validator("save_traces")
    @classmethod
    def _no_traces(cls, given: int | None) -> int | None:
        return given or None


JobSpec = Annotated[TrainSpec | EvaluateSpec, Discriminator("kind")]
JOB_SPEC: TypeAdapter[TrainSpec | EvaluateSpec] = TypeAdapter(JobSpec)


class TagChange(Spec):
    """The body of `POST /jobs/{id}/tags`: tags that a job gets, and tags that it loses."""

    add: Tags = []
    remove: Tags = []

    @model_validator(mode="after")
    def _says_what(self) -> Self:
        if both := [tag for tag in self.add if tag in self.remove]:
            raise ValueError(f"{both[0]!r} is to be added and to be removed")
        if not self.add and not self.remove:
            raise ValueError("give tags to `add`, to `remove`, or both")
        return self
