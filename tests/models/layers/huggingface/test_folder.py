"""Folders of Hugging Face models that are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from assay.models.hf_text_classifier import hf_text_classifier
from tests.support import hf_models
from tests.support.hf_classifiers import NAME, edited, image_classifier, text_classifier


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("config.json", {"quantization_config": {"quant_method": "gptq", "bits": 4}}, "is quantized"),
        ("config.json", {"problem_type": "multi_label_classification"}, "no classifier with one label"),
        ("config.json", {"model_type": "of_nobody", "auto_map": {"AutoConfig": "m.C"}}, "cannot be used"),
        ("config.json", {"architectures": None, "num_hidden_layers": 3}, "tensors are missing"),
        ("config.json", {"max_position_embeddings": 31}, "have another shape"),
    ],
)
def test_unfit_folders_are_refused(name: str, changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        text_classifier(edited(hf_models.bert(), tmp_path / "copy", name, **changes))


def test_weights_of_another_kind_of_model_or_in_other_formats_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"do not fit a text classifier: \d+ tensors are missing.*score"):
        text_classifier(hf_models.gpt2())
    folder = edited(hf_models.bert(), tmp_path / "pickled", "config.json")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="has no safetensors file"):
        text_classifier(folder)
    with pytest.raises(
        ValueError, match=r'no weights but pulled ones: give it "weights": \{"pulled": true\}'
    ):
        hf_text_classifier(2, 9, **NAME)
    with pytest.raises(
        ValueError, match=r"the model has 2 classes \(negative, positive\), the data set has 5"
    ):
        hf_text_classifier(5, 9, **NAME, pretrained=hf_models.bert())
    with pytest.raises(ValueError, match="max_length is 33, the model reads at most 32 tokens"):
        text_classifier(hf_models.bert(), max_length=33)


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = hf_models.vit()  # made by the package, before it is gone
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"need the extra hf: pip install 'assay-robustness\[hf\]'"):
        image_classifier(folder)
