"""torchvision's classifiers: built by name, and with weights equal to torchvision's own loading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision import models

from assay.models.from_torchvision import architectures, build, load, published, torchvision
from tests.support.pulled import pull_tensors


def test_the_choices_are_torchvisions_classifiers() -> None:
    names = architectures()
    assert {"resnet50", "vit_b_16", "swin_t", "densenet121"} <= set(names)
    assert not {"fcn_resnet50", "raft_small", "r3d_18"} & set(names)


@pytest.mark.parametrize(("architecture", "size", "own"), [("squeezenet1_1", 96, 224), ("resnet18", 64, 224)])
def test_any_size_and_number_of_classes(architecture: str, size: int, own: int) -> None:
    model = torchvision(7, 3, architecture=architecture, image_size=size).eval()
    with torch.no_grad():
        assert model(torch.zeros(2, 3, size, size)).shape == (2, 7)
    assert torchvision(7, 3, architecture=architecture).image_size == own
    config: Any = model.pretrained_cfg
    assert config == {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), "num_classes": 1000}


@pytest.mark.costly
@pytest.mark.parametrize("architecture", ["shufflenet_v2_x0_5", "mnasnet0_5", "densenet121", "googlenet"])
def test_pulled_weights_are_loaded_as_torchvision_does(
    tmp_path: Path, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With old names, module versions and auxiliary heads."""
    torch.manual_seed(1)
    options = {"init_weights": False} if architecture == "googlenet" else {}
    content = models.get_model_builder(architecture)(weights=None, **options).state_dict()
    old: dict[str, Tensor] = content
    if architecture == "densenet121":
        kept = {name: tensor for name, tensor in content.items() if "num_batches" not in name}
        old = {k.replace(".norm1.", ".norm.1.").replace(".conv2.", ".conv.2."): v for k, v in kept.items()}
        assert old.keys() != kept.keys()
    weights = published(architecture, None)
    monkeypatch.setattr(type(weights), "get_state_dict", lambda self, *args, **kwargs: old)
    theirs = models.get_model_builder(architecture)(weights=weights).eval()
    converted = build(architecture, 1000, 224, pretrained=True)
    load(converted, old, architecture)
    tensors = {name: tensor.clone() for name, tensor in converted.state_dict().items()}
    made = pull_tensors(tmp_path, f"torchvision:{architecture}.{weights.name}", tensors)
    ours = torchvision(1000, 3, architecture=architecture, pretrained=made.folder).eval()
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(ours(images), theirs(images))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"architecture": "resnet5O"}, "torchvision has no architecture 'resnet5O'; did you mean 'resnet50'"),
        ({"architecture": "resnet50", "tag": "IMAGENET1K_V3"}, r"did you mean 'IMAGENET1K_V\d'.*there are:"),
        ({"architecture": "vit_b_16", "image_size": 64, "pretrained": Path("x")}, "images of at least 224"),
        ({"architecture": "resnet18", "pretrained": Path("x")}, "know 1000 classes, not 7"),
        (
            {"architecture": "resnet18", "channels": 1},
            "torchvision's models read 3 channels: the data have 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        torchvision(7, **({"channels": 3} | arguments))


def test_other_tensors_are_refused() -> None:
    model = build("squeezenet1_1", 10, 224, pretrained=True)
    tensors = {name: tensor for name, tensor in model.state_dict().items() if name != "classifier.1.bias"}
    with pytest.raises(ValueError, match=r"squeezenet1_1 of this image size: classifier.1.bias, extra$"):
        load(model, tensors | {"extra": torch.zeros(1)}, "squeezenet1_1")
