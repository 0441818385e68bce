"""Galleries: a few examples of an evaluation before and after an attack or a perturbation, to look at.

An evaluation that attacks or perturbs its examples has the artifact `gallery-<index:03d>-<evaluation>.json`,
a `Gallery`; `docs/galleries.md` says which examples it shows. Shards write one of the same form each, for the
merge. The process that writes them runs uploaded programs: readers validate them here, and escape every text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from assay.service.contract.results import Answer

VERSION = 1
MAX_ITEMS = 12
LARGE_PIXELS, MAX_LARGE_ITEMS = 10_000, 6  # Above so many pixels an image or label map is large.
MAX_BYTES = 4 * 2**20
# Longer texts and series are cut or thinned to so many tokens and points, of at most so many features.
MAX_TOKENS, MAX_POINTS, MAX_FEATURES = 256, 512, 8

Png = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]+={0,2}$", max_length=MAX_BYTES)]
"""A PNG file of 8 bits per channel, in base64."""
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Size = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0)]
Points = Annotated[list[Finite], Field(max_length=MAX_POINTS)]
TextPart = Annotated[str, StringConstraints(max_length=100_000)]


class GalleryAnswer(Answer):
    """The model's answer to one input."""

    prediction: Count | None = None  # The class; null where the logits are not finite
    confidence: Share | None = None  # Softmax of that class; null where the logits are not finite
    value: Finite | None = None  # The prediction of a regression, in the unit of its targets; null elsewhere


class GalleryExample(Answer):
    """Common fields of the items."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    id: TextPart  # Of the example
    rank: Count  # Place in the order of sampling among the examples of the job, from 0
    # Whether the attack or the perturbation changed a right answer to a wrong answer; for label maps whether
    # fewer pixels are right; for texts of a language model whether a word was swapped
    succeeded: bool
    label: Count | None = None  # The true class; null where there is no single class
    before: GalleryAnswer | None = None  # The answer to the clean example; null without a single answer
    after: GalleryAnswer | None = None  # The answer to the changed example


class GalleryImage(GalleryExample):
    """An image of a classifier."""

    kind: Literal["image"] = "image"
    width: Count  # In pixels
    height: Count  # In pixels
    clean: Png | None  # The unchanged image; null: as in the item before
    changed: Png  # The image that counts, rounded to 8 bits; the model saw the unrounded image
    difference: Png | None = None  # Grey 0.5 plus the change times `factor`; null under corruptions
    factor: Size | None = None  # 0.5 / epsilon in an Linf ball, else 0.5 / this image's largest change
    linf: Size | None = None  # Largest change of a value, in the attacked space
    l2: Size | None = None  # L2 norm of the change, in the attacked space
    clamped: bool = False  # Whether `changed` had values outside [0, 1], which are shown as 0 and 1
    corruption: TextPart | None = None  # The corruption; null for attacks
    severity: Count | None = None  # Of the corruption, 1 to 5


class GalleryMaps(GalleryExample):
    """An image of a segmentation model. Maps are PNG files with the palette of `Gallery.classes`."""

    kind: Literal["segmentation"] = "segmentation"
    width: Count  # In pixels
    height: Count  # In pixels
    clean: Png  # The unchanged image
    changed: Png  # The image that counts
    difference: Png  # As of `GalleryImage`
    factor: Size  # As of `GalleryImage`
    linf: Size | None = None  # As of `GalleryImage`
    l2: Size | None = None  # As of `GalleryImage`
    loss: TextPart  # The loss that found the image
    truth: Png  # The label map; 255 is ignored
    map_before: Png  # The predicted classes of the unchanged image; 255 where logits are not finite
    map_after: Png  # The predicted classes of the changed image
    accuracy_before: Share | None = None  # Share of labelled pixels that are right; null without any
    accuracy_after: Share | None = None  # The same share of the changed image
    shown: Annotated[list[Count], Field(max_length=256)]  # The classes in the three maps, ascending


class GalleryToken(Answer):
    """A word of a text; `loss` is -log p in nats, null for classifiers and where it is not finite."""

    text: TextPart
    changed: bool = False
    loss: Finite | None = None


GalleryTokens = Annotated[list[GalleryToken], Field(max_length=MAX_TOKENS)]


class GalleryText(GalleryExample):
    """A text of a classifier or of a language model."""

    kind: Literal["text"] = "text"
    clean: GalleryTokens  # Words of the unchanged text
    perturbed: GalleryTokens  # Words of the changed text
    offset: Count = 0  # Words before the first word shown
    words: Count  # Of the whole unchanged text


class GallerySeries(GalleryExample):
    """A time series, in standard deviations of each feature over the training set."""

    kind: Literal["series"] = "series"
    features: Annotated[list[Count], Field(max_length=MAX_FEATURES)]  # The most changed ones, ascending
    all_features: Count  # Their number in the series
    steps: Count  # Steps of the series
    every: Annotated[int, Field(ge=1)]  # Steps from one point to the next
    clean: Annotated[list[Points], Field(max_length=MAX_FEATURES)]  # The unchanged points of each feature
    perturbed: Annotated[list[Points], Field(max_length=MAX_FEATURES)]  # The changed series
    linf: Size | None = None  # Largest change of a value
    l2: Size | None = None  # L2 norm of the change
    target: Finite | None = None  # Of a regression, in its own unit


GalleryItem = GalleryImage | GalleryMaps | GalleryText | GallerySeries
GalleryKind = Literal["image", "segmentation", "text", "series"]


class GalleryClass(Answer):
    """A class of the items: its index, name, and colour in label maps (`#rrggbb`); index null: no class."""

    index: Count | None
    name: TextPart
    colour: Annotated[str, StringConstraints(pattern=r"^#[0-9a-f]{6}$")] | None = None


class Gallery(Answer):
    """The examples of an evaluation."""

    version: Literal[1] = 1  # Of this form
    kind: GalleryKind  # Of all items
    evaluation: TextPart  # Its name
    params: dict[str, Any]  # Its parameters
    protocol: TextPart  # Of the run; images of `paper` are shown without the model's normalisation
    classes: list[GalleryClass]  # Classes that the items name, ascending; "no class" comes last
    items: list[Annotated[GalleryItem, Field(discriminator="kind")]]  # Successes first, each part by rank
    left_out: Count = 0  # Items that did not fit into `MAX_BYTES`


def chosen(items: Sequence[GalleryItem]) -> list[GalleryItem]:
    """A gallery's items from all shards: 12, or 6 of large images; successes, then lower ranks, first."""
    ordered = sorted(items, key=lambda item: (not item.succeeded, item.rank))
    corrupted = [item for item in items if isinstance(item, GalleryImage) and item.corruption is not None]
    if corrupted:
        first = min(item.rank for item in corrupted)
        return [item for item in corrupted if item.rank == first]
    sizes = (item.width * item.height for item in items if isinstance(item, GalleryImage | GalleryMaps))
    return ordered[: max_items(max(sizes, default=0))]


def max_items(pixels: int) -> int:
    """The most items that a gallery of images with so many pixels has."""
    return MAX_LARGE_ITEMS if pixels > LARGE_PIXELS else MAX_ITEMS
