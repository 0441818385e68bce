"""Loads a weights file into a classifier, one tensor in memory at a time."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import safetensors
import torch
from torch import Tensor

from assay.models.layers.heads import Grid
from assay.models.layers.layers import Classifier
from assay.models.layers.position_embeddings import Resizing, resize_positions, square_grid
from assay.models.weights.key_maps import Shape, Shapes
from assay.service.catalog.catalog import load
from assay.service.contract.stored_specs import ModelReference
from assay.service.contract.weights.options import ChannelStatistics
from assay.workers.data.formats.dataset import ExampleSet, ImageSet, model_classes
from assay.workers.data.formats.text import TextSet
from assay.workers.jobs.failures import BadWeights
from assay.workers.weights.headers import Fit, fit, in_words, read_shapes
from assay.workers.weights.verify import PRECISIONS, read_dtypes


@dataclass(frozen=True)
class File:
    """Facts about a loaded file."""

    metadata: Mapping[str, str]  # the texts in its header
    foreign: bool  # whether it has no normalisation


def check_same_words(path: Path, data: ExampleSet) -> None:
    """Refuse weights that were trained with another vocabulary than the data has: BadWeights."""
    _, metadata = read_shapes(path)
    trained = json.loads(metadata.get("trained_on", "{}")).get("vocabulary")
    if trained is not None and trained != cast(TextSet, data).vocabulary.sha256:
        raise BadWeights(
            f"the weights were trained with another vocabulary than {data.name!r} has: they would read"
            " other words. A text for language models has the vocabulary of its own training part; labelled"
            " texts take the vocabulary of a language data set by their parameter vocabulary"
        )


def load_weights(classifier: Classifier, path: Path, data: ExampleSet, positions: Resizing | None) -> File:
    """Load a safetensors file into a classifier on the CPU, in its training precision, at least float32.

    So a training job's weights keep the job's hash, and the normalisation of halved weights keeps its
    precision. Messages name the data. `positions` resizes position embeddings of another grid, None rejects
    them.
    """
    shapes, metadata = read_shapes(path)
    wanted = {name: tuple(tensor.shape) for name, tensor in classifier.state_dict().items()}
    found = fit(shapes, wanted, positions)
    if found.faults:
        raise _misfit(found, shapes, wanted, data)
    precisions = {PRECISIONS[dtype] for dtype in read_dtypes(path).values() if dtype in PRECISIONS}
    classifier.to(max({*precisions, torch.float32}, key=lambda dtype: dtype.itemsize))
    copy_tensors(classifier, path, found, positions)
    return File(metadata, found.layout.foreign)


def copy_tensors(classifier: Classifier, path: Path, found: Fit, positions: Resizing | None = None) -> None:
    """Copy the tensors of a fitting file into a classifier, keeping its dtypes."""
    with safetensors.safe_open(path, framework="pt") as file:
        for name, ours in classifier.state_dict().items():
            for part in found.layout.parts(name):
                grid = found.resized.get(part.name)
                _fill(part.rows(ours), file.get_tensor(part.name), grid, positions)


def _fill(ours: Tensor, theirs: Tensor, grid: Grid | None, positions: Resizing | None) -> None:
    if grid is not None:
        own = square_grid(tuple(theirs.shape))
        assert own is not None
        assert positions is not None
        theirs = resize_positions(theirs.to(ours.dtype), own, grid, positions)
    ours.copy_(theirs)


def _misfit(found: Fit, given: Shapes, wanted: Shapes, data: ExampleSet) -> BadWeights:
    classes = found.other_classes(model_classes(data))
    if classes is not None:
        return BadWeights(
            f"the weights are of a model with {classes} classes,"
            f" the data set {data.name!r} has {model_classes(data)}"
        )
    theirs, ours = _differing_sizes(found, given, wanted, data)
    if theirs:
        return BadWeights(
            f"the weights are of a model for {theirs}; for the data set {data.name!r} the model has {ours}:"
            " evaluate it on the data that it was trained on"
        )
    return BadWeights(in_words(found.faults))


def _differing_sizes(found: Fit, given: Shapes, wanted: Shapes, data: ExampleSet) -> tuple[str, str]:
    """Features, classes and length of the weights and of the model, where they differ; empty if unknown.

    A tensor that only one of both has is no matter of the data.
    """
    if found.missing or found.unexpected:
        return "", ""
    differing: dict[str, list[tuple[Shape | None, Shape | None]]] = {
        _noun("channels", data): [(given.get("mean"), wanted.get("mean"))],
        _noun("classes", data): [
            (theirs, ours) for theirs, ours in found.shapes.values() if ours == (model_classes(data),)
        ],
        _noun("length", data): [
            (theirs[:1], ours[:1])
            for key, (theirs, ours) in found.shapes.items()
            if key.endswith("positions") and theirs[1:] == ours[1:]
        ],
    }
    known = {
        noun: (math.prod(theirs), math.prod(ours))
        for noun, pairs in differing.items()
        for theirs, ours in pairs[:1]
        if theirs is not None and ours is not None and theirs != ours
    }
    sides = (", ".join(f"{pair[side]} {noun}" for noun, pair in known.items()) for side in (0, 1))
    return next(sides), next(sides)


def _noun(size: str, data: ExampleSet) -> str:
    return load().task(data.task).sizes.get(size, size)


def normalization_of_pulled(
    pretrained: Mapping[str, Any] | None, data: ImageSet, model: ModelReference
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The normalisation of pulled weights; BadWeights are for other classes or channels than the data's."""
    assert pretrained is not None
    for noun, theirs, ours in (
        ("classes", pretrained["num_classes"], model_classes(data)),
        ("channels", len(pretrained["mean"]), data.channels),
    ):
        if theirs != ours:
            raise BadWeights(
                f"the pulled weights of the model {model['name']!r} are for {theirs} {noun}, the data set"
                f" {data.name!r} has {ours}"
            )
    return tuple(pretrained["mean"]), tuple(pretrained["std"])


def normalization_of_upload(
    stated: ChannelStatistics, data: ImageSet
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The normalisation that is stated with weights; BadWeights of other channels than the data's."""
    if len(stated["mean"]) != data.channels:
        raise BadWeights(
            f"the normalization of the weights is for {len(stated['mean'])} channels,"
            f" the data set {data.name!r} has {data.channels}"
        )
    return tuple(stated["mean"]), tuple(stated["std"])
