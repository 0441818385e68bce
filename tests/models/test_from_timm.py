"""timm's miniature models stand for its families: with and without an image size at construction."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.models import from_timm
from assay.models.from_timm import architectures, timm


@pytest.mark.parametrize(
    "architecture", ["test_vit", "test_resnet", "test_convnext", "rpc_symvit_tiny_patch16_224"]
)
@pytest.mark.parametrize("size", [64, None])
def test_any_architecture_at_its_own_or_another_size(architecture: str, size: int | None) -> None:
    model = timm(7, 1, architecture=architecture, image_size=size).eval()
    own = 224 if "symvit" in architecture else 160
    assert model.image_size == (size or own)
    with torch.no_grad():
        assert model(torch.zeros(2, 1, model.image_size, model.image_size)).shape == (2, 7)


def test_keeps_timms_preprocessing() -> None:
    config: Any = timm(7, 3, architecture="test_vit").pretrained_cfg
    assert config["mean"] == (0.5, 0.5, 0.5)
    assert len(config["std"]) == 3


def test_choices_are_all_of_timm_and_ours() -> None:
    names = from_timm.CHOICES["architecture"]()
    assert names == architectures() == sorted(set(names))
    assert {"resnet50", "vit_tiny_patch16_224", "symvit_base_patch16_224"} <= set(names)
    assert len(names) > 1000


def test_is_a_component_that_hides_pretrained_from_the_user() -> None:
    assert from_timm.__all__ == [timm.__name__] == ["timm"]
    hints = typing.get_type_hints(timm, include_extras=True)
    assert "system" in hints["pretrained"].__metadata__
    assert inspect.signature(timm).parameters["pretrained"].default is None


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"architecture": "resnet5O"}, "timm has no architecture 'resnet5O'; did you mean 'resnet50"),
        ({"architecture": "hf-hub:someone/model"}, "timm has no architecture"),
        ({"architecture": "resnet50.a1_in1k"}, "timm has no architecture"),
        ({"architecture": "resnet18", "tag": "a1_in1"}, "did you mean 'a1_in1k'"),
        (
            {"architecture": "symvit_tiny_patch16_224", "pretrained": Path("x")},
            "timm has no pretrained weights",
        ),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        timm(10, 3, **parameters)


def test_a_fixed_image_size_is_kept() -> None:
    config = {"input_size": (3, 224, 224), "fixed_input_size": True}
    with pytest.raises(ValueError, match="some_model takes images of 224 pixels only: got image_size 64"):
        from_timm._check_size("some_model", config, 64)
    from_timm._check_size("some_model", config, 224)


def test_images_must_not_be_too_small() -> None:
    config = {"input_size": (3, 256, 256), "min_input_size": (3, 96, 96)}
    with pytest.raises(ValueError, match="some_model needs images of at least 96 pixels: got image_size 64"):
        from_timm._check_size("some_model", config, 64)
    from_timm._check_size("some_model", config, 96)


class Stub(nn.Module):
    """timm's return value for pretrained weights."""

    def __init__(self, height: int = 224) -> None:
        super().__init__()
        vars(self)["pretrained_cfg"] = {"input_size": (3, height, 224)}


def test_pretrained_weights_are_asked_for_by_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, dict[str, Any]]] = []

    def create(name: str, **options: Any) -> nn.Module:
        calls.append((name, options))
        return Stub()

    monkeypatch.setattr(from_timm, "create_model", create)
    model = timm(1000, 3, architecture="resnet50", tag="tv_in1k", pretrained=Path("folder"))
    file = {"file": "folder/model.safetensors", "custom_load": False}
    options = {"pretrained": True, "pretrained_cfg_overlay": file, "num_classes": 1000, "in_chans": 3}
    assert calls == [("resnet50.tv_in1k", options)]
    assert model.image_size == 224


def test_oblong_images_need_an_image_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(from_timm, "create_model", lambda name, **options: Stub(height=448))
    with pytest.raises(
        ValueError, match="resnet50 takes images of 448 x 224 pixels: give a square image_size"
    ):
        timm(10, 3, architecture="resnet50")
    assert timm(10, 3, architecture="resnet50", image_size=96).image_size == 96


def test_other_type_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def create(name: str, **options: Any) -> nn.Module:
        raise TypeError("something else")

    monkeypatch.setattr(from_timm, "create_model", create)
    with pytest.raises(TypeError, match="something else"):
        timm(10, 3, architecture="resnet18", image_size=64)
