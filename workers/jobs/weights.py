"""Weights files: what is in them, and how it fits a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from torch import nn

from models.layers import Classifier
from models.weights import Layout, find_layout
from workers.jobs.failures import BadWeights

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Build = Callable[[int, int], nn.Module]
KEYS_SHOWN = 8
# Any two numbers would do: the sizes that move with them are those of classes, and of channels.
CLASSES, CHANNELS = 5, 3


@dataclass(frozen=True)
class Fit:
    """How a file fits a model; all names are the file's.

    Attributes:
        layout: whose names the file has.
        missing: tensors that the model has and the file has not.
        unexpected: tensors that the model has not.
        shapes: of tensors whose shapes differ: the file's and the model's.
    """

    layout: Layout
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    shapes: Mapping[str, tuple[Shape, Shape]]

    @property
    def faults(self) -> list[str]:
        """Every fault in words."""
        return [
            *(f"missing {name}" for name in self.missing),
            *(f"unexpected {name}" for name in self.unexpected),
            *(
                f"{name} has shape {given}, the model's is {wanted}"
                for name, (given, wanted) in self.shapes.items()
            ),
        ]

    def other_classes(self, classes: int) -> int | None:
        """The number of classes of the weights, if it is the only fault that the model has another one."""
        if self.missing or self.unexpected:
            return None
        heads = {
            given[0] if given[1:] == wanted[1:] and wanted[:1] == (classes,) and given else None
            for given, wanted in self.shapes.values()
        }
        return heads.pop() if len(heads) == 1 else None


def fit(given: Shapes, wanted: Shapes) -> Fit:
    """Compare a file with a model.

    Args:
        given: the shapes of the file's tensors by name.
        wanted: the shapes in the Classifier's state dict by name.
    """
    layout = find_layout(given, wanted)
    expected = {
        theirs: shape for key, shape in wanted.items() if (theirs := layout.to_theirs(key)) is not None
    }
    return Fit(
        layout,
        missing=tuple(key for key in expected if key not in given),
        unexpected=tuple(key for key in given if key not in expected),
        shapes={
            key: (given[key], shape)
            for key, shape in expected.items()
            if key in given and given[key] != shape
        },
    )


def in_words(faults: list[str]) -> str:
    """The first faults, and how many more there are."""
    more = f" and {len(faults) - KEYS_SHOWN} more" if len(faults) > KEYS_SHOWN else ""
    return "the weights do not fit the model: " + "; ".join(faults[:KEYS_SHOWN]) + more


def read_shapes(path: Path) -> tuple[dict[str, Shape], dict[str, str]]:
    """The shapes of a file's tensors by name, and the texts in its header; no tensor is read.

    Raises:
        BadWeights: the file is gone or damaged.
    """
    if not path.is_file():
        raise BadWeights(f"the weights file {path.name} of job {path.parent.name} is gone")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            return shapes, file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise BadWeights(f"{path.name} of job {path.parent.name} is damaged: {error}") from error


def shapes_of(build: Build, classes: int, channels: int) -> dict[str, Shape]:
    """The shapes in the state dict of a model's Classifier, which takes no memory where that is possible.

    Args:
        build: makes the backbone for so many classes and channels.
        classes: of the data.
        channels: of the images.

    Raises:
        ValueError: the model cannot be built like that.
    """

    def shapes() -> dict[str, Shape]:
        classifier = Classifier(build(classes, channels), [0.0] * channels, [1.0] * channels)
        return {name: tuple(tensor.shape) for name, tensor in classifier.state_dict().items()}

    try:
        with torch.device("meta"):
            return shapes()
    except RuntimeError:  # some architectures compute with values while they are built
        return shapes()


def counts(build: Build, given: Shapes) -> tuple[int | None, int | None]:
    """The classes and channels that weights were made for, by the sizes that move with them in the model.

    Returns:
        Each None where the weights do not tell: their tensors are missing, or have other dimensions.
    """
    plain = shapes_of(build, CLASSES, CHANNELS)
    layout = find_layout(given, plain)
    named = {key: theirs for key in plain if (theirs := layout.to_theirs(key)) is not None}
    ours = {key: given[theirs] for key, theirs in named.items() if theirs in given}
    classes = _moved(plain, shapes_of(build, CLASSES + 1, CHANNELS), ours, CLASSES)
    return classes, _moved(plain, shapes_of(build, CLASSES, CHANNELS + 1), ours, CHANNELS)


def _moved(plain: Shapes, other: Shapes, given: Shapes, count: int) -> int | None:
    """The given size in the first place where the model has `count`, and its variant `count` + 1."""
    for key, shape in plain.items():
        places = [
            axis
            for axis, (size, moved) in enumerate(zip(shape, other.get(key, shape), strict=False))
            if (size, moved) == (count, count + 1)
        ]
        if places and len(given.get(key, ())) == len(shape) and given[key][places[0]] > 0:
            return given[key][places[0]]
    return None
