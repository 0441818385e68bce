"""Types of what a plan finds about the data of an evaluation, as in `records`."""

from __future__ import annotations

from typing import TypedDict


class Doubts(TypedDict, total=False):
    """Counts of examples `seen` in training and classes `renamed` since; 1 for weights `selected_on_test`."""

    seen: int
    renamed: int
    selected_on_test: int


class ResampledImages(TypedDict):
    """Images of the model's `size` that are `resized_to` more pixels, to be cropped again; both in pixels."""

    size: int
    resized_to: int
    crop_fraction: float


class EmptyClasses(TypedDict):
    """The `count` of classes without an example, and the names of the first ten."""

    count: int
    classes: list[str]
