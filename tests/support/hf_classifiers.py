"""Hugging Face models of tests, as the catalog builds them from a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from assay.models.hf_causal_lm import HfCausalLm, hf_causal_lm
from assay.models.hf_image_classifier import HfImageClassifier, hf_image_classifier
from assay.models.hf_text_classifier import HfTextClassifier, hf_text_classifier

NAME: dict[str, Any] = {"repository": "org/name"}


def text_classifier(folder: Path, **params: Any) -> HfTextClassifier:
    model = hf_text_classifier(2, 9, **NAME, pretrained=folder, **params)
    assert isinstance(model, HfTextClassifier)
    return model


def image_classifier(folder: Path, classes: int = 10, **params: Any) -> HfImageClassifier:
    model = hf_image_classifier(classes, 3, **NAME, pretrained=folder, **params)
    assert isinstance(model, HfImageClassifier)
    return model


def language_model(folder: Path, **params: Any) -> HfCausalLm:
    model = hf_causal_lm(9, 9, **NAME, pretrained=folder, **params)
    assert isinstance(model, HfCausalLm)
    return model


def edited(folder: Path, copy: Path, name: str, **changes: Any) -> Path:
    """A copy of a model's folder with values of a JSON file changed; None removes one."""
    shutil.copytree(folder, copy)
    values = {**json.loads((copy / name).read_text()), **changes}
    (copy / name).write_text(json.dumps({key: value for key, value in values.items() if value is not None}))
    return copy
