"""Options that an upload states where its file lacks them: only the uploader knows, nothing is guessed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from pydantic import BaseModel, ConfigDict, Field

from assay.service.contract.errors import MalformedJson
from assay.service.contract.problems import Loc, Problems, nearest
from assay.service.contract.strict_json import parse_json

Mean = Annotated[float, Field(ge=0, le=1)]  # Pixel units of [0, 1]: numbers up to 255 are refused.
Deviation = Annotated[float, Field(gt=0, le=1)]
Positions = Literal["bilinear", "bicubic", "bicubic_antialias"]
NORMALIZATION: Loc = ("query", "normalization")
MAX_CHANNELS = 64
ALLOWED = 'imagenet, inception, data, or {"mean": [...], "std": [...]} as JSON, for pixels in [0, 1]'


class Normalization(BaseModel):
    """Mean and standard deviation of each channel, for pixels in [0, 1]."""

    model_config = ConfigDict(extra="forbid", strict=True)

    mean: Annotated[list[Mean], Field(min_length=1, max_length=MAX_CHANNELS)]
    std: Annotated[list[Deviation], Field(min_length=1, max_length=MAX_CHANNELS)]


class ChannelStatistics(TypedDict):
    """Mean and standard deviation of each channel, for pixels in [0, 1]."""

    mean: list[float]
    std: list[float]


class WeightsReading(TypedDict):
    """Reading options as stated by the upload, None where unstated; `class_names` of the logits, in order."""

    normalization: ChannelStatistics | Literal["data"] | None
    positions: Positions | None
    class_names: NotRequired[list[str]]


NAMED: Mapping[str, ChannelStatistics] = MappingProxyType(  # By timm's names.
    {
        "imagenet": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]},
        "inception": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]},
    }
)
NAMES = (*NAMED, "data")


def normalization_in(text: str) -> ChannelStatistics | Literal["data"]:
    """A normalisation by name, "data" for each job's, or {"mean", "std"} as JSON; else InvalidSpec."""
    problems = Problems()
    if text == "data":
        return "data"
    if text in NAMED:
        return {"mean": [*NAMED[text]["mean"]], "std": [*NAMED[text]["std"]]}
    if not text.lstrip().startswith("{"):
        problems.add(NORMALIZATION, "is not known", given=text, allowed=ALLOWED, nearest=nearest(text, NAMES))
        problems.raise_if_any()
    given: Any = None
    try:
        given = parse_json(text.encode(), 4)
    except (MalformedJson, UnicodeEncodeError) as error:
        problems.add(NORMALIZATION, f"it begins like JSON and is none: {error}", given=text, allowed=ALLOWED)
    problems.raise_if_any()
    _check(given, problems)
    problems.raise_if_any()
    return {
        "mean": [float(value) for value in given["mean"]],
        "std": [float(value) for value in given["std"]],
    }


def _check(given: Mapping[str, Any], problems: Problems) -> None:
    for key in [*given, *({"mean", "std"} - given.keys())]:
        loc = (*NORMALIZATION, key)
        values = given.get(key)
        if key not in ("mean", "std"):
            problems.add(loc, "unknown field", given=values, allowed=["mean", "std"])
        elif not isinstance(values, list) or not 1 <= len(values) <= MAX_CHANNELS:
            problems.add(loc, "must be one number for each channel", given=values, allowed=ALLOWED)
        elif not all(_right(key, value) for value in values):
            bounds = "from 0 to 1" if key == "mean" else "above 0 and at most 1"
            problems.add(
                loc, f"must be numbers {bounds}, for pixels in [0, 1]", given=values, allowed=ALLOWED
            )
    if not problems and len(given["mean"]) != len(given["std"]):
        message = f"mean has {len(given['mean'])} channels, std has {len(given['std'])}"
        problems.add(NORMALIZATION, message, given=given, allowed=ALLOWED)


def _right(key: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 <= value <= 1 and (key == "mean" or value != 0)


def check_reading(reading: WeightsReading, names: Collection[str]) -> None:
    """Refuse (InvalidSpec) a stated normalisation for a file that has its own, among its tensors' names."""
    if reading["normalization"] is not None and {"mean", "std"} <= set(names):
        problems = Problems()
        message = "the file has a normalization of its own (the tensors mean and std)"
        problems.add(NORMALIZATION, message, given=reading["normalization"], allowed="nothing")
        problems.raise_if_any()
