"""Interfaces and shared code of data sets; n examples, C channels, H height, W width, S requested side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypedDict

import torch
from PIL.Image import Image
from torch import Tensor
from torch.nn import functional

from assay.service.contract.corruption_cells import Cell
from assay.service.submission.data_folders import NOT_UTF_8, shown_name


class MissingData(Exception):
    """Data are missing: the message says what is wanted, where, and how to get it."""


class CorruptData(ValueError):
    """A file has invalid content: the message names file and place."""


def reason_of(error: Exception) -> str:
    """What an error says of a file, without the file's path, which messages name once."""
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


class ExampleSet(Protocol):
    """Examples for training and evaluation, in a stable order."""

    @property
    def name(self) -> str:
        """Catalog name, which keys examples for `limit` and splits."""

    @property
    def task(self) -> str:
        """`classification`, `segmentation`, `language`, `sequence` or `control`.

        Time series: `series` or `series_regression`; images also `anomaly_detection` or `stored_corruptions`.
        """

    @property
    def classes(self) -> int:
        """Classes; of a language V, the vocabulary size; of control A, an action's."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class, (classes,); empty for a language."""

    @property
    def channels(self) -> int:
        """C; of text V; of time series the features; of control an observation's numbers."""

    @property
    def ids(self) -> Sequence[str]:
        """Unique example ids in stable order, (n,)."""

    def __len__(self) -> int:
        """Number of examples."""

    def content_sha256(self) -> str:
        """Hash of the examples' content; the same on every machine."""


def refuse_training(title: str, split: str) -> None:
    """Raises MissingData for the training part of a set that has none."""
    if split == "train":
        raise MissingData(f"{title} is a test set: it has no training images. Train on other data.")


class Listed(TypedDict):
    """What a `ListedSet` is made of; its sub-classes hand these on."""

    name: str
    class_names: tuple[str, ...]
    ids: Sequence[str]


def utf_8(name: str) -> str:
    """A name of a class or an example, which outcomes and databases take. Raises CorruptData."""
    if NOT_UTF_8.search(name):
        raise CorruptData(f"the name {shown_name(name)} is not UTF-8; rename it")
    return name


class ListedSet:
    """A set that knows the names of its classes and its examples' ids from the beginning."""

    def __init__(self, name: str, class_names: tuple[str, ...], ids: Sequence[str]) -> None:
        self.name = name
        self.class_names = tuple(map(utf_8, class_names))
        self.classes = len(class_names)
        for one in ids:
            utf_8(one)
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)


class Levels(NamedTuple):
    """Images as whole numbers, from 0 for black to `white`."""

    levels: Tensor  # uint8 (B, C, S, S)
    white: int  # the level of the pixel value 1

    def pixels(self) -> Tensor:
        """Pixels in [0, 1], float32 (B, C, S, S), on the levels' device: the same bits on every device.

        The divisor is a tensor: CUDA multiplies by a number's rounded reciprocal.
        """
        pixels = self.levels.to(torch.float32)
        return pixels.div_(torch.full((), float(self.white), device=pixels.device))


class ImageSet(ExampleSet, Protocol):
    """Images of some classes, read lazily. All tensors live on the CPU."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Recommended normalisation: mean per channel of pixels in [0, 1]."""

    @property
    def std(self) -> tuple[float, ...]:
        """Recommended normalisation: standard deviation per channel of pixels in [0, 1]."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Native (H, W), or None if it varies."""

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """Pixels in [0, 1], float32 (len(indices), C, size, size)."""

    def content_sha256(self) -> str:
        """Hash of ids, labels and pixels (or files); the same on every machine."""


class DataSet(ImageSet, Protocol):
    """Images with one label each."""

    @property
    def labels(self) -> Tensor:
        """int64 (n,), in [0, classes)."""


class CorruptedSet(DataSet, Protocol):
    """Images stored corrupted; as a `DataSet` the images of its first cell."""

    @property
    def cells(self) -> Sequence[Cell]:
        """The corruptions and severities that are read, C."""

    def of_cells(self, cells: Sequence[Cell]) -> CorruptedSet:
        """This set restricted to these cells."""

    def check(self) -> None:
        """Look at all that will be read."""

    def cell_images(self, cell: Cell, indices: Sequence[int], size: int) -> Tensor | Levels:
        """A cell's images: levels, or pixels in [0, 1], float32 (len(indices), C, size, size)."""


def model_class_names(data: ExampleSet) -> tuple[str, ...]:
    """Class name of each logit of a model for this data.

    A set of some of a larger set's classes, for models of all of them (ImageNet-A), has an attribute of this
    name.
    """
    names: tuple[str, ...] | None = getattr(data, "model_class_names", None)
    return data.class_names if names is None else names


def model_classes(data: ExampleSet) -> int:
    """Number of logits of a model for this data."""
    names: tuple[str, ...] | None = getattr(data, "model_class_names", None)
    return data.classes if names is None else len(names)


def logit_groups(data: ExampleSet) -> list[list[int]] | None:
    """The model's logits for each of the set's classes, in order; None for all logits, one each.

    A class has the logit of its name; a set with several logits for a class, of which the best counts, has an
    attribute of this name.
    """
    groups: Sequence[Sequence[int]] | None = getattr(data, "logit_groups", None)
    if groups is not None:
        return [[*group] for group in groups]
    names = model_class_names(data)
    if names == data.class_names:
        return None
    places = {name: place for place, name in enumerate(names)}
    return [[places[name]] for name in data.class_names]


def stored_images(data: ImageSet, indices: Sequence[int], size: int) -> Tensor | Levels:
    """`images` of a set, or its `levels` where every pixel at the size is a level."""
    read: Callable[[Sequence[int], int], Levels | None] | None = getattr(data, "levels", None)
    found = None if read is None else read(indices, size)
    return data.images(indices, size) if found is None else found


def original(data: ImageSet, index: int) -> Image | None:
    """An image as stored, RGB at its own size; None for sets without image files."""
    read: Callable[[int], Image | None] | None = getattr(data, "picture", None)
    return None if read is None else read(index)


def checked_indices(indices: Sequence[int], n: int) -> list[int]:
    """The indices as plain integers."""
    chosen = [int(index) for index in indices]
    for index in chosen:
        if not 0 <= index < n:
            raise IndexError(f"example index {index} is outside [0, {n})")
    return chosen


def check_length(data: ExampleSet, length: int) -> None:
    """Refuse time series longer than what a model reads."""
    longest: int = data.longest  # type: ignore[attr-defined]
    if longest > length:
        raise ValueError(
            f"the longest series of {data.name!r} has {longest} steps, the model reads {length}:"
            f" give the model's parameter length at least {longest}"
        )


def checked_size(size: int) -> int:
    """Validated side of the square images."""
    if size < 1:
        raise ValueError(f"the image size must be >= 1; got {size}")
    return size


def resize(pixels: Tensor, size: int) -> Tensor:
    """Square images float32 (n, C, S, S) of (n, C, H, W) in [0, 1], each from its image alone.

    Bilinear with half-pixel centres, anti-aliased when shrinking; the same object if nothing changes.
    """
    size = checked_size(size)
    if pixels.shape[-2:] == (size, size):
        return pixels
    if len(pixels) == 0:  # interpolate rejects an empty batch
        return pixels.new_empty((0, pixels.shape[1], size, size))
    resized = functional.interpolate(
        pixels, size=(size, size), mode="bilinear", align_corners=False, antialias=True
    )
    return resized.clamp_(0.0, 1.0)  # rounded weights: a white image may exceed 1 by an ulp
