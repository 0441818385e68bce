"""Loading of backbone weights into the encoder of a model for training.

The encoder of a text classifier may have another attention than the language model of the weights, if its
weights have the same layout: see `service.submission.backbone`. Position embeddings of another grid are
resized as by Segmenter's authors (bilinear, half-pixel centres); parts only for classification (head, class
attention) are left out. The file is of a classifier, in any known layout, or of another such encoder.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import safetensors.torch
import torch
from torch import Tensor, nn

from assay.models.layers.encoders import Encoder
from assay.models.layers.layers import Classifier
from assay.models.layers.position_embeddings import resize_positions
from assay.models.layers.token_model import wrap
from assay.models.weights.key_maps import Shapes
from assay.service.catalog.catalog import load
from assay.service.contract.records import ForeignModel
from assay.service.contract.stored_specs import ComponentReference, ModelReference
from assay.service.submission.backbone import PARAMETER, backbone_of, may_begin_with
from assay.workers import catalog
from assay.workers.jobs.failures import BadWeights
from assay.workers.training.files import CONTENT, content_sha256
from assay.workers.weights.headers import counts, fit, in_words, read_shapes
from assay.workers.weights.load import copy_tensors

POSITIONS = "pos_embed"
WORDS = "embedding.weight"


def load_backbone(model: nn.Module, spec: ModelReference, path: Path) -> None:
    """Load a backbone's weights into a model's encoder; BadWeights are missing, damaged or do not fit."""
    encoder, whole = model.encoder, _whole(spec, path).backbone
    assert isinstance(encoder, nn.Module)
    left_out = cast(Encoder, encoder).CLASSIFIER_ONLY
    source = cast(nn.Module, whole.encoder) if hasattr(whole, "encoder") else whole
    found = {name: it for name, it in source.state_dict().items() if not name.startswith(left_out)}
    for name, own in encoder.state_dict().items():
        if name == POSITIONS and name in found:
            found[name] = resize_positions(found[name], _grid(found[name]), _grid(own))
    _check_shapes(encoder, found)
    encoder.load_state_dict(found)


def _check_shapes(encoder: nn.Module, found: Mapping[str, Tensor]) -> None:
    own = encoder.state_dict()
    words = own.get(WORDS)
    if words is not None and WORDS in found and len(found[WORDS]) != len(words):
        raise BadWeights(
            f"the weights are of a model that knows {len(found[WORDS])} words, the data's vocabulary has"
            f" {len(words)}: give the data the vocabulary of the data that the language model was trained on"
        )
    faults = [f"missing {name}" for name in own if name not in found]
    faults += [f"unexpected {name}" for name in found if name not in own]
    faults += [
        f"{name} has shape {tuple(found[name].shape)}, the model's is {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if faults:
        raise BadWeights(in_words(faults))


def source_of(spec: ModelReference, path: Path) -> ForeignModel:
    """What provenance says of the weights: {"model": {"name", "params"}, "weights_sha256"}."""
    _, metadata = read_shapes(path)
    digest = metadata.get(CONTENT) or content_sha256(sorted(safetensors.torch.load_file(path).items()))
    return {"model": _model_of(spec, metadata), "weights_sha256": digest}


def _whole(spec: ModelReference, path: Path) -> Classifier:
    shapes, metadata = read_shapes(path)
    model = _at_the_size_of(_model_of(spec, metadata), shapes)
    build = catalog.build("model", model["name"], model["params"])
    classes, channels = counts(build, shapes)
    # If the weights do not tell, they do not fit, which is reported below.
    with torch.random.fork_rng(devices=[]):
        backbone: nn.Module = build(classes or 1, channels or 1)
    neutral = [1.0] * (channels or 1)
    classifier = wrap(backbone, neutral, neutral)
    found = fit(shapes, {name: tuple(tensor.shape) for name, tensor in classifier.state_dict().items()})
    if found.faults:
        raise BadWeights(in_words(found.faults))
    copy_tensors(classifier, path, found)
    return classifier


def _model_of(spec: ModelReference, metadata: Mapping[str, str]) -> ComponentReference:
    wanted = spec["params"][PARAMETER]
    text = metadata.get("model")
    stated = json.loads(text) if text is not None else wanted
    if not may_begin_with(load(), wanted["name"], backbone_of(stated)["name"]):
        raise BadWeights(f"the weights are of the model {stated['name']!r}, not of {wanted['name']!r}")
    return {"name": stated["name"], "params": dict(stated["params"])}


def _at_the_size_of(model: ComponentReference, shapes: Shapes) -> ComponentReference:
    found = [shape for name, shape in shapes.items() if name.rpartition(".")[2] == POSITIONS]
    if len(found) != 1 or len(found[0]) != 3 or PARAMETER in model["params"]:
        return model
    side = math.isqrt(max(found[0][1] - 1, 0))
    params = model["params"]
    return {**model, "params": {**params, "image_size": side * params.get("patch_size", 1)}}


def _grid(positions: Tensor) -> tuple[int, int]:
    side = math.isqrt(positions.shape[1] - 1)
    return side, side
