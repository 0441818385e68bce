"""Types of what a plan finds about the data of an evaluation, as in `records`."""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Doubts(TypedDict, total=False):
    """Counts of examples `seen` in training and classes `renamed` since; 1 for weights `selected_on_test`."""

    seen: int
    renamed: int
    selected_on_test: int


class ResampledImages(TypedDict):
    """Images of the model's `size` that are `resized_to` more pixels, to be cropped again; both in pixels.

    So many of the images `looked_at` have this size and stay `as_they_are`; others are resized and cropped.
    """

    size: int
    resized_to: int
    crop_fraction: float
    as_they_are: NotRequired[int]
    looked_at: NotRequired[int]


class ResizedImages(TypedDict):
    """So many `others` of the images `looked_at` have another size than the model's, `size`, in pixels.

    Their short side becomes `short_side` pixels, `size` / `crop_fraction`; then the centre is cropped.
    """

    size: int
    short_side: int
    crop_fraction: float
    others: int
    looked_at: int


class GuessedOrder(TypedDict):
    """Nothing says which logit is which class: the first five `pairs` as they were taken, of `classes`."""

    pairs: list[str]
    classes: int


class EmptyClasses(TypedDict):
    """The `count` of classes without an example, and the names of the first ten."""

    count: int
    classes: list[str]


class OtherContent(TypedDict):
    """The hash of a published set's content, and the hash that its authors' files have."""

    sha256: str
    published: str


class DoubtfulData(TypedDict, total=False):
    """What is doubtful, or to be stated, about the data; `resampled` where all images of a size are.

    `divided_from` counts the examples of a folder without parts: a fifth is evaluated.
    """

    resampled: ResampledImages
    resized: ResizedImages
    empty_classes: EmptyClasses
    guessed_order: GuessedOrder
    other_content: OtherContent
    divided_from: int


class FileRead(TypedDict):
    """A file of a table: the `rows` that were read and, of text, its `lines`, with the line of the names."""

    file: str
    rows: int
    lines: int | None


class DataFound(TypedDict, total=False):
    """What was read of a data set: files of a table, or what was ignored beside images.

    A `crop_fraction` is there where the job states none, and images were cropped by this crop fraction.
    """

    files: list[FileRead]
    ignored: Ignored
    crop_fraction: float


class Ignored(TypedDict):
    """The `count` of files and folders that systems leave behind, and the first ten names."""

    count: int
    first: list[str]
