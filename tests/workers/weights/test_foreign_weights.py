"""Files from elsewhere, checked and loaded: their layouts, numbers, normalisation and position embeddings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from assay.models.layers.position_embeddings import resize_positions
from assay.models.vit import vit
from assay.workers.jobs.failures import BadWeights
from assay.workers.jobs.loading import Loaded
from assay.workers.jobs.session import Session
from tests.support.foreign_weights import FAN, SHAPE, checked, fan, model, nvidia, saved, vit_tensors

STATED = {"mean": [0.25], "std": [0.5]}


@pytest.fixture
def load(spec: dict[str, Any]) -> Any:
    def load(path: Path, name: str = "vit", shape: dict[str, Any] = SHAPE, **reading: Any) -> Loaded:
        spec["model"] = model(name, shape, reading)
        return Session().classifier(spec, device="cpu", weights=str(path))

    return load


def test_nvidias_fan_is_checked_and_loaded(tmp_path: Path, load: Any) -> None:
    theirs = fan()
    path = saved(tmp_path, nvidia(dict(theirs.state_dict())))
    verdict, error = checked(path, "fan_vit", FAN)
    assert (error, verdict["layout"], verdict["classes"], verdict["channels"]) == (None, "nvidia_fan", 10, 1)
    pixels = torch.rand(2, 1, 16, 16)
    classifier = load(path, "fan_vit", FAN, normalization={"mean": [0.0], "std": [1.0]}).classifier
    with torch.no_grad():
        torch.testing.assert_close(classifier(pixels), theirs(pixels))


def test_faults_of_cut_tensors_have_the_files_names(tmp_path: Path) -> None:
    tensors = nvidia(dict(fan().state_dict()))
    tensors["blocks.0.attn.kv.weight"] = torch.zeros(47, 24)
    del tensors["blocks.1.attn.q.bias"]
    verdict, _ = checked(saved(tmp_path, tensors), "fan_vit", FAN)
    assert verdict["missing"] == ["blocks.1.attn.q.bias"]
    assert verdict["shapes"] == [{"key": "blocks.0.attn.kv.weight", "given": [47, 24], "wanted": [48, 24]}]
    _, error = checked(saved(tmp_path, nvidia(dict(fan().state_dict()))), "rpc_fan_vit", FAN)
    assert "its queries have a matrix of their own" in error


def test_an_unused_head_is_left_out_and_told(tmp_path: Path) -> None:
    from assay.models.segmenter import segmenter

    network = segmenter(5, 1, backbone=lambda classes, channels: vit(classes, channels, **SHAPE))
    tensors = dict(network.state_dict()) | {"encoder.head.weight": torch.zeros(1000, 12)}
    params = {"backbone": {"name": "vit", "params": SHAPE}}
    verdict, error = checked(saved(tmp_path, tensors), "segmenter", params)
    assert (error, verdict["layout"], verdict["classes"]) == (None, "segmenter", 5)
    assert verdict["left_out"] == ["encoder.head.weight"]


def test_of_many_faults_the_first_are_in_the_error_and_all_in_the_verdict(tmp_path: Path) -> None:
    tensors = {name: torch.full_like(tensor, torch.nan) for name, tensor in vit_tensors().items()}
    verdict, error = checked(saved(tmp_path, tensors))
    assert len(verdict["other"]) == len(tensors) == 20
    assert error.endswith("; and 12 more")


def test_a_normalisation_that_was_stated_is_used_without_a_warning(tmp_path: Path, load: Any) -> None:
    path = saved(tmp_path, vit_tensors())
    loaded = load(path, normalization=STATED)
    assert (loaded.classifier.mean.item(), loaded.classifier.std.item(), loaded.assumed) == (0.25, 0.5, None)
    unsaid = load(path)
    assert unsaid.assumed is not None
    assert unsaid.assumed["data"] == "digits"
    assert unsaid.assumed["mean"] == pytest.approx([unsaid.classifier.mean.item()])
    assert load(path, normalization="data").assumed is None
    assert load(path, normalization="data").weights_sha256 == unsaid.weights_sha256 != loaded.weights_sha256
    with pytest.raises(BadWeights, match="is for 3 channels, the data set 'digits' has 1"):
        load(path, normalization={"mean": [0.5] * 3, "std": [0.5] * 3})


def test_a_normalisation_that_cannot_be_is_rejected(tmp_path: Path) -> None:
    from assay.models.layers.layers import Classifier

    three = {"mean": [0.5] * 3, "std": [0.5] * 3}
    path = saved(tmp_path, vit_tensors())
    assert checked(path, normalization=STATED)[1] is None
    assert checked(path, normalization=three)[1] == (
        "the normalization is for 3 channels, the weights are for 1"
    )
    own = Classifier(vit(10, 1, **SHAPE), [0.5], [0.5])
    _, error = checked(saved(tmp_path, dict(own.state_dict())), normalization=STATED)
    assert error == "a normalization was given, and the file has one of its own (mean, std)"


def test_position_embeddings_of_another_grid_are_resized_when_asked(tmp_path: Path, load: Any) -> None:
    tensors = vit_tensors(image_size=24)
    path = saved(tmp_path, tensors)
    verdict, error = checked(path)
    assert "pos_embed is for 36 patches, the model has 4 x 4" in error
    assert verdict["shapes"] == [{"key": "pos_embed", "given": [1, 37, 12], "wanted": [1, 17, 12]}]
    for how in ("bilinear", "bicubic", "bicubic_antialias"):
        verdict, error = checked(path, positions=how)
        assert (error, verdict["resized"], verdict["shapes"]) == (None, ["pos_embed"], [])
        state = load(path, positions=how).classifier.backbone.state_dict()
        expected = resize_positions(tensors["pos_embed"], (6, 6), (4, 4), how)
        assert torch.equal(state["pos_embed"], expected)
        assert all(torch.equal(state[name], t) for name, t in tensors.items() if name != "pos_embed")
    with pytest.raises(BadWeights, match="pos_embed has shape"):
        load(path)


def test_what_fits_is_not_resized(tmp_path: Path, load: Any) -> None:
    tensors = vit_tensors()
    path = saved(tmp_path, tensors)
    assert checked(path, positions="bicubic")[0]["resized"] == []
    found = load(path, positions="bicubic").classifier.backbone.state_dict()
    assert torch.equal(found["pos_embed"], tensors["pos_embed"])


def test_one_tensor_at_a_time_is_read(tmp_path: Path, load: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is never whole in memory: each tensor is freed before the next is read."""
    import weakref

    from assay.workers.weights import load as load_module

    path = saved(tmp_path, vit_tensors())
    alive: list[weakref.ref[Tensor]] = []
    most = 0
    fill = load_module._fill

    def counting(ours: Tensor, theirs: Tensor, *rest: Any) -> None:
        nonlocal most
        alive.append(weakref.ref(theirs))
        most = max(most, sum(ref() is not None for ref in alive))
        fill(ours, theirs, *rest)

    monkeypatch.setattr(load_module, "_fill", counting)
    load(path)
    assert (len(alive), most) == (20, 1)
