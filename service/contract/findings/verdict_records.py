"""The findings of `checkpoints.Verdict` as JSON in the database; earlier verdicts lack some keys."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class WrongShapeRecord(TypedDict):
    """A tensor with another shape than the model's."""

    key: str
    given: list[int]
    wanted: list[int]


class ProgramRecord(TypedDict):
    """Facts of a program; without `gradients` it has them, without a `task` it classifies."""

    image_size: int | None
    dtypes: list[str]
    random: bool
    gradients: NotRequired[bool]
    task: NotRequired[str]
    length: NotRequired[int | None]
    vocabulary: NotRequired[str | None]
    gradients_compared: NotRequired[bool | None]
    probabilities: NotRequired[bool]


class VerdictRecord(TypedDict, total=False):
    """`checkpoints.Verdict` as JSON."""

    missing: list[str]
    unexpected: list[str]
    shapes: list[WrongShapeRecord]
    other: list[str]
    unlisted: int
    layout: str | None
    classes: int | None
    channels: int | None
    program: ProgramRecord | None
    left_out: list[str]
    resized: list[str]
