"""Weights of a model for other data: one sentence names the sizes of both."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from safetensors.torch import save_file

from assay.models.layers.layers import Classifier
from assay.models.layers.series_model import SeriesModel
from assay.models.layers.token_model import TokenModel
from assay.models.sequence_transformer import sequence_transformer
from assay.models.series_transformer import series_transformer
from assay.models.vit import vit
from assay.workers.jobs.failures import BadWeights
from assay.workers.weights.load import load_weights

SIZES: dict[str, Any] = {"width": 8, "heads": 2, "depth": 1, "hidden": 8}


def series(classes: int, features: int, length: int, pooling: Any = "mean") -> Classifier:
    backbone = series_transformer(classes, features, **SIZES, length=length, pooling=pooling)
    return SeriesModel(backbone, [0.0] * features, [1.0] * features)


def sequences(classes: int, tokens: int, length: int) -> Classifier:
    return TokenModel(sequence_transformer(classes, tokens, **SIZES, length=length))


def images(classes: int, channels: int) -> Classifier:
    backbone = vit(classes, channels, image_size=8, patch_size=4, width=8, depth=1, heads=2)
    return Classifier(backbone, [0.0] * channels, [1.0] * channels)


def refused(saved: Classifier, model: Classifier, path: Path, task: str, classes: int) -> str:
    file = path / "weights.safetensors"
    save_file({name: value.contiguous() for name, value in saved.state_dict().items()}, file)
    data: Any = SimpleNamespace(name="given", task=task, classes=classes, class_names=("a",) * classes)
    with pytest.raises(BadWeights) as caught:
        load_weights(model, file, data, None)
    return str(caught.value)


@pytest.mark.parametrize("pooling", ["mean", "flatten"])
def test_series_of_other_features_classes_and_length(tmp_path: Path, pooling: Any) -> None:
    said = refused(series(9, 12, 29, pooling), series(6, 3, 48, pooling), tmp_path, "series", 6)
    assert said == (
        "the weights are of a model for 12 features, 9 classes, 29 steps; for the data set 'given' the model"
        " has 3 features, 6 classes, 48 steps: evaluate it on the data that it was trained on"
    )


def test_only_what_differs_is_named(tmp_path: Path) -> None:
    said = refused(series(6, 12, 48), series(6, 3, 48), tmp_path, "series", 6)
    assert "for 12 features; for the data set 'given' the model has 3 features:" in said


def test_other_classes_alone_are_told_as_before(tmp_path: Path) -> None:
    said = refused(series(9, 3, 48), series(6, 3, 48), tmp_path, "series", 6)
    assert said == "the weights are of a model with 9 classes, the data set 'given' has 6"


def test_images_of_other_channels(tmp_path: Path) -> None:
    said = refused(images(10, 3), images(4, 1), tmp_path, "classification", 4)
    assert "for 3 channels, 10 classes; for the data set 'given' the model has 1 channels, 4 classes:" in said


def test_sequences_of_other_tokens_and_length(tmp_path: Path) -> None:
    said = refused(sequences(3, 20, 12), sequences(2, 30, 16), tmp_path, "sequence", 2)
    assert "3 classes, 12 tokens; for the data set 'given' the model has 2 classes, 16 tokens:" in said


def test_another_network_is_told_by_its_tensors(tmp_path: Path) -> None:
    said = refused(images(6, 3), series(6, 3, 48), tmp_path, "series", 6)
    assert said.startswith("the weights do not fit the model: ")
