"""A Segmenter that begins with the weights of a classifier: which are taken, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import Tensor, nn

from assay.models.layers.layers import Classifier
from assay.models.layers.position_embeddings import resize_positions
from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers import catalog
from assay.workers.jobs import train
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.session import Session
from assay.workers.training.files import CONTENT, save_weights
from assay.workers.weights.backbone import load_backbone

SMALL = {"image_size": 16, "patch_size": 4, "width": 24, "depth": 1, "heads": 3}


def backbone(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "params": {**SMALL, **changes}}


def segmenter(inner: dict[str, Any]) -> dict[str, Any]:
    return {"name": "segmenter", "params": {"backbone": inner, "decoder": "linear"}}


def built(model: dict[str, Any], classes: int) -> nn.Module:
    module: nn.Module = catalog.build("model", model["name"], model["params"])(classes, 3)
    return module


def saved(of: dict[str, Any], classes: int, path: Path, **texts: str) -> dict[str, Tensor]:
    """Random weights of a classifier in a file, and the backbone's by name."""
    torch.manual_seed(7)
    classifier = Classifier(built(of, classes), [0.4] * 3, [0.2] * 3)
    save_weights(classifier, path, texts)
    return classifier.backbone.state_dict()


@pytest.mark.parametrize("name", ["vit", "rpc_symvit", "fan_vit"])
def test_the_encoder_has_the_classifiers_weights(name: str, tmp_path: Path) -> None:
    weights = saved(backbone(name), 7, tmp_path / "w.safetensors")
    model = built(segmenter(backbone(name)), 5)
    before = {key: value.clone() for key, value in model.decoder.state_dict().items()}  # type: ignore[union-attr]
    load_backbone(model, segmenter(backbone(name)), tmp_path / "w.safetensors")
    own = model.encoder.state_dict()  # type: ignore[union-attr]
    assert own
    assert all(torch.equal(own[key], weights[key]) for key in own)
    left_out = set(weights) - set(own)
    assert {key.partition(".")[0] for key in left_out} <= {"head", "cls_token", "cls_attn_blocks"}
    after = model.decoder.state_dict()  # type: ignore[union-attr]
    assert all(torch.equal(after[key], before[key]) for key in after)


def test_positions_are_resized_to_the_grid_of_the_encoder(tmp_path: Path) -> None:
    weights = saved(backbone("vit"), 7, tmp_path / "w.safetensors")
    model = built(segmenter(backbone("vit", image_size=32)), 5)
    load_backbone(model, segmenter(backbone("vit", image_size=32)), tmp_path / "w.safetensors")
    expected = resize_positions(weights["pos_embed"], (4, 4), (8, 8))
    assert torch.equal(model.encoder.pos_embed, expected)  # type: ignore[union-attr]
    assert torch.equal(expected[:, :1], weights["pos_embed"][:, :1])


def test_files_from_elsewhere_and_of_other_segmenters(tmp_path: Path) -> None:
    torch.manual_seed(3)
    plain = built(backbone("vit"), 7).state_dict()
    safetensors.torch.save_file({f"model.{key}": value for key, value in plain.items()}, tmp_path / "deit")
    model = built(segmenter(backbone("vit")), 5)
    load_backbone(model, segmenter(backbone("vit")), tmp_path / "deit")
    assert torch.equal(model.encoder.pos_embed, plain["pos_embed"])  # type: ignore[union-attr]
    text = json.dumps({**segmenter(backbone("vit")), "weights": None})
    other = saved(segmenter(backbone("vit")), 9, tmp_path / "other", model=text)
    load_backbone(model, segmenter(backbone("vit")), tmp_path / "other")
    assert torch.equal(model.encoder.pos_embed, other["encoder.pos_embed"])  # type: ignore[union-attr]


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    saved(backbone("vit", depth=2), 7, path)
    model, spec = built(segmenter(backbone("vit")), 5), segmenter(backbone("vit"))
    with pytest.raises(BadWeights, match=r"unexpected backbone\.blocks\.1"):
        load_backbone(model, spec, path)
    saved(backbone("symvit"), 7, path, model=json.dumps(backbone("symvit")))
    with pytest.raises(BadWeights, match="of the model 'symvit', not of 'vit'"):
        load_backbone(model, spec, path)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """ASSAY_DATA_ROOT with a few images in two classes."""
    draws = np.random.default_rng(0)
    for number in range(24):
        path = tmp_path / "data" / "pictures" / ("a", "b")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draws.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(path)
    monkeypatch.setenv("ASSAY_DATA_ROOT", str(tmp_path / "data"))
    return tmp_path


def trained(spec: dict[str, Any], folder: Path, weights: Path | None = None) -> dict[str, Any]:
    full = validate(load(), {"kind": "train", "execution": {"device": "cpu", "batch_size": 8}, **spec}).spec
    request = {"spec": full, "folder": folder, "checkpoint_seconds": 60, "cores": 1, "job": "j"}
    with torch.random.fork_rng():
        return train.run({**request, "weights": weights and str(weights)}, Session(), lambda _: None)


@pytest.mark.costly
@pytest.mark.trains
def test_a_training_begins_with_them_and_says_so(folder: Path) -> None:
    classifying = {
        "model": backbone("vit"),
        "data": {"name": "image_folder", "params": {"folder": "pictures"}},
        "recipe": {"name": "small_vit", "params": {"epochs": 1, "warmup_epochs": 0}},
    }
    source = trained(classifying, folder / "source")
    assert source["extra"]["plan"]["sources"] == {}
    segmenting = {
        "model": {**segmenter(backbone("vit")), "weights": {"job": "source", "part": "backbone"}},
        "data": {"name": "shapes"},
        # So slow that nothing is learned: the encoder stays what it was.
        "recipe": {"name": "segmenter", "params": {"epochs": 1, "crop_size": 16, "short_side": 16,
                                                    "learning_rate": 1e-12, "minimum_learning_rate": 0.0}},
    }  # fmt: skip
    answer = trained(segmenting, folder / "after", folder / "source" / "weights.safetensors")
    before = safetensors.torch.load_file(folder / "source" / "weights.safetensors")
    after = safetensors.torch.load_file(folder / "after" / "weights.safetensors")
    named = {key: key.replace("backbone.encoder.", "backbone.") for key in after if "encoder" in key}
    assert named
    assert all(torch.allclose(after[key], before[theirs], atol=1e-6) for key, theirs in named.items())
    with safetensors.safe_open(folder / "source" / "weights.safetensors", framework="pt") as file:
        digest = file.metadata()[CONTENT]
    (found,) = answer["extra"]["plan"]["sources"].values()
    assert found["weights_sha256"] == digest
    assert (found["model"]["name"], found["model"]["params"]["depth"]) == ("vit", 1)
