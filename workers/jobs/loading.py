"""A classifier ready to run, and the steps of loading it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from assay.models.layers.layers import Classifier
from assay.models.layers.position_embeddings import Resizing
from assay.models.layers.token_model import TokenModel, reads_series, reads_words, wrap
from assay.service.catalog.catalog import load
from assay.service.contract.records import AssumedNormalization
from assay.service.contract.stored_specs import ModelReference, UserSpec
from assay.service.contract.weights.options import ChannelStatistics
from assay.workers import accelerator, catalog
from assay.workers.data.formats.dataset import ExampleSet, ImageSet, model_classes
from assay.workers.data.formats.own_tokens import built_for
from assay.workers.data.formats.text import TextSet
from assay.workers.jobs.failures import BadWeights
from assay.workers.precision import computes_in_tf32, has_tf32
from assay.workers.training.files import content_sha256
from assay.workers.weights.backbone import load_backbone
from assay.workers.weights.load import (
    File,
    check_same_words,
    load_weights,
    normalization_of_pulled,
    normalization_of_upload,
)
from assay.workers.weights.logit_names import LogitNames
from assay.workers.weights.programs import load_classifier
from assay.workers.weights.pulled import pulled_weights

DTYPES = {
    "float32": torch.float32,
    "tf32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


@dataclass(frozen=True)
class Loaded:
    """A classifier ready to run: pixels (B, channels, S, S) in [0, 1] to logits (B, classes).

    A model of words is a `TokenModel`, a model of time series a `SeriesModel` or `RegressionModel`, and a
    policy a `PolicyModel`.
    """

    classifier: Classifier
    image_size: int  # pixels; the most tokens or steps, and for a policy the steps of its window
    weights_sha256: str
    untrained: bool
    device: torch.device
    dtype: torch.dtype
    metadata: Mapping[str, str] = field(default_factory=dict)  # in the header of the weights file
    assumed: AssumedNormalization | None = None  # the weights may have been trained with another
    unstated_vocabulary: bool = False  # nothing says for which words a program for texts was made
    logit_names: LogitNames | None = None
    gradients_not_compared: bool = False  # a program of images does not state that its module has them

    @property
    def device_class(self) -> accelerator.DeviceClass:
        """The class by which jobs ask for its device."""
        return accelerator.device_class(self.device)


@dataclass(frozen=True)
class ModelRequest:
    """A model that a job asks for: its spec, the data, the device, and the file of its weights, if any."""

    spec: UserSpec
    data: ExampleSet
    device: torch.device
    file: Path | None

    @property
    def model(self) -> ModelReference:
        """The model of the spec."""
        return self.spec["model"]

    @property
    def is_program(self) -> bool:
        """Whether it is an exported program."""
        return self.model["name"] == load().program_model

    @property
    def weights(self) -> Mapping[str, Any]:
        """The weights of the spec; empty for random weights."""
        return cast(Mapping[str, Any], self.model["weights"] or {})

    def backbone(self, **system: object) -> nn.Module:
        """The model for the data, with random or pulled weights."""
        build = catalog.build("model", self.model["name"], self.model["params"])
        # Random weights depend on the job's seed alone, and the draw leaves no trace in torch's state.
        digest = hashlib.blake2b(f"weights/{self.spec['seed']}".encode(), digest_size=8).digest()
        with torch.random.fork_rng(devices=[]):
            # torch.manual_seed would reseed the GPUs for good
            torch.default_generator.manual_seed(int.from_bytes(digest) >> 1)
            pulled = pulled_weights(self.model)
            own = {} if pulled is None else {"pretrained": pulled.folder}
            return built_for(self.data, build, **own, **system)

    def program(self, task: str, vocabulary: str | None = None) -> tuple[Classifier, str]:
        """The program of the file for a task, and its hash; BadWeights without a file."""
        if self.file is None:
            raise BadWeights(f"the model {self.model['name']!r} has no weights but those of a checkpoint")
        return load_classifier(self.file, model_classes(self.data), self.data.channels, task, vocabulary)

    def load_file(
        self, classifier: Classifier, backbone: nn.Module | None = None, *, positions: Resizing | None = None
    ) -> File:
        """Load the file, if any, into a classifier, or a part of a model into its backbone."""
        if self.file is None:
            return File({}, foreign=False)
        if backbone is not None and self.weights.get("part") is not None:
            load_backbone(backbone, self.model, self.file)
            return File({}, foreign=False)
        return load_weights(classifier, self.file, self.data, positions)

    def prepared(
        self,
        classifier: Classifier,
        *,
        digest: str | None = None,
        metadata: Mapping[str, str] | None = None,
        assumed: AssumedNormalization | None = None,
    ) -> Loaded:
        """A classifier on the device, in the job's arithmetic, with the given hash or its state dict's."""
        execution = self.spec["execution"]
        dtype = DTYPES[execution["dtype"]]
        classifier.requires_grad_(self.spec["kind"] == "train").eval()
        digest = digest or state_sha256(classifier)
        classifier.to(device=self.device, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
        if execution.get("channels_last") and not self.is_program:
            classifier.to(memory_format=torch.channels_last)
        if execution["dtype"] == "tf32" and has_tf32(self.device):
            computes_in_tf32(classifier)
        return Loaded(
            classifier=classifier,
            image_size=image_size_of(self.model, classifier.backbone),
            weights_sha256=digest,
            untrained=self.model["weights"] is None,
            device=self.device,
            dtype=dtype,
            metadata=metadata or {},
            assumed=assumed,
        )


def state_sha256(module: nn.Module) -> str:
    """Hash of every tensor of the state dict with its name, dtype and shape, in name order."""
    return content_sha256(sorted(module.state_dict().items()))


def image_size_of(model: ModelReference, backbone: nn.Module) -> int:
    """Pixels, tokens or steps that a model reads."""
    if reads_words(backbone):
        return int(cast(int, backbone.sequence_length))
    if reads_series(backbone):
        return int(cast(int, backbone.series_length))
    if (window := getattr(backbone, "context_length", None)) is not None:  # of a policy
        return int(window)
    size = model["params"].get("image_size") or getattr(backbone, "image_size", None)
    if size is None:
        raise ValueError(f"model {model['name']!r} needs the parameter image_size")
    return int(size)


def load_program(request: ModelRequest, task: str) -> Loaded:
    """An exported program of images, for a task that programs have."""
    program, digest = request.program(task)
    loaded = request.prepared(program, digest=digest)
    return replace(loaded, gradients_not_compared=not cast(Any, program.backbone).compared)


def load_images(request: ModelRequest, backbone: nn.Module) -> Loaded:
    """A model of images or time series with the weights of a file, if any; BadWeights do not fit."""
    data, model = cast(ImageSet, request.data), request.model
    mean, std = data.mean, data.std
    if pulled_weights(model) is not None:
        mean, std = normalization_of_pulled(getattr(backbone, "pretrained_cfg", None), data, model)
    stated = request.weights.get("normalization")
    if isinstance(stated, dict):
        mean, std = normalization_of_upload(cast(ChannelStatistics, stated), data)
    # Mean and standard deviation of the targets of a regression.
    classifier = wrap(backbone, mean, std, getattr(data, "target_statistics", None))
    file = request.load_file(classifier, backbone, positions=request.weights.get("positions"))
    assumed: AssumedNormalization | None = None
    if file.foreign and stated is None:
        assumed = {"data": data.name, "mean": [*mean], "std": [*std]}
    return request.prepared(classifier, metadata=file.metadata, assumed=assumed)


def load_words(request: ModelRequest) -> Loaded:
    """A model of words, or an exported program of texts; a ValueError: the model is for images."""
    data = request.data
    if request.is_program:
        program, digest = request.program(data.task, cast(TextSet, data).vocabulary.sha256)
        unstated = cast(Any, program.backbone).program.vocabulary is None
        return replace(request.prepared(program, digest=digest), unstated_vocabulary=unstated)
    backbone = request.backbone()
    if not reads_words(backbone):
        name = request.model["name"]
        raise ValueError(f"the data set {data.name!r} is text, the model {name!r} is for images")
    classifier = TokenModel(backbone)
    if request.file is not None:
        check_same_words(request.file, data)
    file = request.load_file(classifier, backbone)
    return request.prepared(classifier, metadata=file.metadata)
