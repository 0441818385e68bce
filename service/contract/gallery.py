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
# Of images and label maps with more pixels than that there are fewer.
LARGE_PIXELS, MAX_LARGE_ITEMS = 10_000, 6
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
Part = Annotated[str, StringConstraints(max_length=100_000)]


class GalleryAnswer(Answer):
    """The model's answer to one input.

    Attributes:
        prediction: The class; null where the logits are not finite.
        confidence: Softmax of that class; null where the logits are not finite.
        value: The prediction of a regression, in the unit of its targets; null elsewhere.
    """

    prediction: Count | None = None
    confidence: Share | None = None
    value: Finite | None = None


class GalleryExample(Answer):
    """Common fields of the items.

    Attributes:
        id: Of the example.
        rank: Place in the order of sampling among the examples of the job, from 0.
        succeeded: Whether the attack or the perturbation changed a right answer to a wrong one; for label
            maps whether fewer pixels are right; for texts of a language model whether a word was swapped.
        label: The true class; null where there is no single one.
        before: The answer to the clean example; null where there is no single one.
        after: The answer to the changed one.
    """

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    id: Part
    rank: Count
    succeeded: bool
    label: Count | None = None
    before: GalleryAnswer | None = None
    after: GalleryAnswer | None = None


class GalleryImage(GalleryExample):
    """An image of a classifier.

    Attributes:
        width: In pixels.
        height: In pixels.
        clean: The unchanged image; null: that of the item before.
        changed: The image that counts, rounded to 8 bits; the model saw the unrounded one.
        difference: Grey 0.5 plus the change times `factor`; null under corruptions.
        factor: 0.5 / epsilon for attacks within an Linf ball, else 0.5 / the largest change of this image.
        linf: Largest change of a value, in the attacked space.
        l2: L2 norm of the change, in the attacked space.
        clamped: Whether `changed` had values outside [0, 1], which are shown as 0 and 1.
        corruption: The corruption; null for attacks.
        severity: Of the corruption, 1 to 5.
    """

    kind: Literal["image"] = "image"
    width: Count
    height: Count
    clean: Png | None
    changed: Png
    difference: Png | None = None
    factor: Size | None = None
    linf: Size | None = None
    l2: Size | None = None
    clamped: bool = False
    corruption: Part | None = None
    severity: Count | None = None


class GalleryMaps(GalleryExample):
    """An image of a segmentation model. Maps are PNG files with a palette, which `Gallery.classes` explains.

    Attributes:
        width: In pixels.
        height: In pixels.
        clean: The unchanged image.
        changed: The image that counts.
        difference: As of `GalleryImage`.
        factor: As of `GalleryImage`.
        linf: As of `GalleryImage`.
        l2: As of `GalleryImage`.
        loss: The loss that found the image.
        truth: The label map; 255 is ignored.
        map_before: The predicted classes of the unchanged image; 255 where logits are not finite.
        map_after: Those of the changed image.
        accuracy_before: Share of the labelled pixels that are right; null without a labelled pixel.
        accuracy_after: That of the changed image.
        shown: The classes in the three maps, ascending.
    """

    kind: Literal["segmentation"] = "segmentation"
    width: Count
    height: Count
    clean: Png
    changed: Png
    difference: Png
    factor: Size
    linf: Size | None = None
    l2: Size | None = None
    loss: Part
    truth: Png
    map_before: Png
    map_after: Png
    accuracy_before: Share | None = None
    accuracy_after: Share | None = None
    shown: Annotated[list[Count], Field(max_length=256)]


class GalleryToken(Answer):
    """A word of a text; `loss` is -log p in nats, null for classifiers and where it is not finite."""

    text: Part
    changed: bool = False
    loss: Finite | None = None


Tokens = Annotated[list[GalleryToken], Field(max_length=MAX_TOKENS)]


class GalleryText(GalleryExample):
    """A text of a classifier or of a language model.

    Attributes:
        clean: Words of the unchanged text.
        perturbed: Words of the changed one.
        offset: Words before the first one shown.
        words: Of the whole unchanged text.
    """

    kind: Literal["text"] = "text"
    clean: Tokens
    perturbed: Tokens
    offset: Count = 0
    words: Count


class GallerySeries(GalleryExample):
    """A time series, in standard deviations of each feature over the training set.

    Attributes:
        features: Features shown: those that changed most, ascending.
        all_features: Their number in the series.
        steps: Steps of the series.
        every: Steps from one point to the next.
        clean: The unchanged series, a list of points for each feature shown.
        perturbed: The changed one.
        linf: Largest change of a value.
        l2: L2 norm of the change.
        target: Of a regression, in its own unit.
    """

    kind: Literal["series"] = "series"
    features: Annotated[list[Count], Field(max_length=MAX_FEATURES)]
    all_features: Count
    steps: Count
    every: Annotated[int, Field(ge=1)]
    clean: Annotated[list[Points], Field(max_length=MAX_FEATURES)]
    perturbed: Annotated[list[Points], Field(max_length=MAX_FEATURES)]
    linf: Size | None = None
    l2: Size | None = None
    target: Finite | None = None


GalleryItem = GalleryImage | GalleryMaps | GalleryText | GallerySeries
GalleryKind = Literal["image", "segmentation", "text", "series"]


class GalleryClass(Answer):
    """A class of the items: its index, name, and colour in label maps (`#rrggbb`); index null: no class."""

    index: Count | None
    name: Part
    colour: Annotated[str, StringConstraints(pattern=r"^#[0-9a-f]{6}$")] | None = None


class Gallery(Answer):
    """The examples of one evaluation.

    Attributes:
        version: Of this form.
        kind: Of all items.
        evaluation: Its name.
        params: Its parameters.
        protocol: Of the run; images of `paper` are shown without the model's normalisation.
        classes: Those that the items name, ascending; "no class" comes last.
        items: Successes first, each part by rank.
        left_out: Items that did not fit into `MAX_BYTES`.
    """

    version: Literal[1] = 1
    kind: GalleryKind
    evaluation: Part
    params: dict[str, Any]
    protocol: Part
    classes: list[GalleryClass]
    items: list[Annotated[GalleryItem, Field(discriminator="kind")]]
    left_out: Count = 0


def chosen(items: Sequence[GalleryItem]) -> list[GalleryItem]:
    """The items that a gallery shows, from those of all shards in any order.

    Successes come before the rest, and lower ranks first: 12 of them, 6 of large images. Corrupted images are
    those of the example with the lowest rank, in the order in which they were made.
    """
    ordered = sorted(items, key=lambda item: (not item.succeeded, item.rank))
    corrupted = [item for item in items if isinstance(item, GalleryImage) and item.corruption is not None]
    if corrupted:
        first = min(item.rank for item in corrupted)
        return [item for item in corrupted if item.rank == first]
    sizes = (item.width * item.height for item in items if isinstance(item, GalleryImage | GalleryMaps))
    return ordered[: max_items(max(sizes, default=0))]


def max_items(pixels: int) -> int:
    """The number of items of a gallery whose images have so many pixels."""
    return MAX_LARGE_ITEMS if pixels > LARGE_PIXELS else MAX_ITEMS
