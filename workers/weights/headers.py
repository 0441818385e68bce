"""Headers of weights files, and their fit to a model. No tensor is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors
import torch
from torch import Tensor, nn

from assay.models.layers.heads import Grid
from assay.models.layers.position_embeddings import Resizing, square_grid
from assay.models.layers.token_model import wrap
from assay.models.weights.key_maps import Shape, Shapes
from assay.models.weights.layouts import Layout, find_layout
from assay.workers.jobs.failures import BadWeights

Build = Callable[[int, int], nn.Module]
KEYS_SHOWN = 8
# Arbitrary numbers: sizes that change with them depend on classes, or on channels.
CLASSES, CHANNELS = 5, 3


@dataclass(frozen=True)
class Fit:
    """Fit of a file to a model; all names are the file's."""

    layout: Layout
    missing: tuple[str, ...]  # only the model has them
    unexpected: tuple[str, ...]  # only the file has them
    shapes: Mapping[str, tuple[Shape, Shape]]  # differing: the file's and the model's
    resized: Mapping[str, Grid] = field(default_factory=dict)  # the model's grids; not among `shapes`
    left_out: tuple[str, ...] = ()  # known not to be needed

    @property
    def faults(self) -> list[str]:
        """Messages for all faults."""
        return [
            *(f"missing {name}" for name in self.missing),
            *(f"unexpected {name}" for name in self.unexpected),
            *(
                f"{name} has shape {given}, the model's is {wanted}"
                for name, (given, wanted) in self.shapes.items()
            ),
        ]

    def other_classes(self, classes: int) -> int | None:
        """Number of classes of the weights, if that is the only mismatch."""
        if self.missing or self.unexpected:
            return None
        heads = {
            given[0] if given[1:] == wanted[1:] and wanted[:1] == (classes,) and given else None
            for given, wanted in self.shapes.values()
        }
        return heads.pop() if len(heads) == 1 else None


def fit(given: Shapes, wanted: Shapes, positions: Resizing | None = None) -> Fit:
    """Compare shapes of a file with a Classifier's; positions of another grid fit where they are resized."""
    layout = find_layout(given, wanted)
    expected = {part.name: part.shape(shape) for key, shape in wanted.items() for part in layout.parts(key)}
    other = {key: (given[key], shape) for key, shape in expected.items() if given.get(key, shape) != shape}
    resized = {} if positions is None else dict(resizable(other))
    return Fit(
        layout,
        missing=tuple(key for key in expected if key not in given),
        unexpected=tuple(key for key in given if key not in expected and key not in layout.unused),
        shapes={key: pair for key, pair in other.items() if key not in resized},
        resized=resized,
        left_out=tuple(key for key in given if key in layout.unused and key not in expected),
    )


def resizable(shapes: Mapping[str, tuple[Shape, Shape]]) -> Iterator[tuple[str, Grid]]:
    """Position embeddings among the differing tensors, with the model's grid."""
    for key, (given, wanted) in shapes.items():
        grid = square_grid(wanted)
        named = key.rpartition(".")[2] == "pos_embed"
        if named and grid is not None and square_grid(given) is not None and given[2] == wanted[2]:
            yield key, grid


def in_words(faults: list[str]) -> str:
    """The first faults, and the number of further ones."""
    more = f" and {len(faults) - KEYS_SHOWN} more" if len(faults) > KEYS_SHOWN else ""
    return "the weights do not fit the model: " + "; ".join(faults[:KEYS_SHOWN]) + more


def read_shapes(path: Path) -> tuple[dict[str, Shape], dict[str, str]]:
    """A file's shapes of tensors by name, and the texts in its header; no tensor is read."""
    if not path.is_file():
        raise BadWeights(f"the weights file {path.name} of job {path.parent.name} is gone")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            return shapes, file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise BadWeights(f"{path.name} of job {path.parent.name} is damaged: {error}") from error


def shapes_of(build: Build, classes: int, channels: int) -> dict[str, Shape]:
    """Shapes in the state dict of a model's Classifier; see `state_of`."""
    return {name: tuple(tensor.shape) for name, tensor in state_of(build, classes, channels).items()}


def state_of(build: Build, classes: int, channels: int) -> dict[str, Tensor]:
    """State dict of a model's Classifier, on the meta device if possible; a ValueError if not built."""

    def state() -> dict[str, Tensor]:
        return wrap(build(classes, channels), [0.0] * channels, [1.0] * channels).state_dict()

    try:
        with torch.device("meta"):
            return state()
    except RuntimeError:  # some architectures compute with values while they are built
        return state()


def counts(build: Build, given: Shapes) -> tuple[int | None, int | None]:
    """Classes and channels of weights, by their tensors' sizes; None where tensors are missing or differ."""
    plain = shapes_of(build, CLASSES, CHANNELS)
    layout = find_layout(given, plain)
    named = {key: parts[0].name for key in plain if len(parts := layout.parts(key)) == 1}
    ours = {key: given[theirs] for key, theirs in named.items() if theirs in given}
    classes = _moved(plain, shapes_of(build, CLASSES + 1, CHANNELS), ours, CLASSES)
    return classes, _moved(plain, shapes_of(build, CLASSES, CHANNELS + 1), ours, CHANNELS)


def _moved(plain: Shapes, other: Shapes, given: Shapes, count: int) -> int | None:
    for key, shape in plain.items():
        places = [
            axis
            for axis, (size, moved) in enumerate(zip(shape, other.get(key, shape), strict=False))
            if (size, moved) == (count, count + 1)
        ]
        if places and len(given.get(key, ())) == len(shape) and given[key][places[0]] > 0:
            return given[key][places[0]]
    return None
