"""Exports of every model of the catalog keep its gradients, and no model is blamed for its outputs.

Models of texts are exported with their ids, models of images with their pixels. Models of series have no
programs; their outputs are looked at all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import Tensor, nn
from torchvision import models

from assay.models.layers.token_model import wrap
from assay.service.catalog.catalog import load
from assay.workers import catalog
from assay.workers.evaluation.engine.probabilities import probability_evidence
from assay.workers.weights.export import export_program
from assay.workers.weights.export_inputs import CannotExport
from tests.laws.test_model_laws import DATA, SMALL, SMALL_PARAMETERS, WORDS
from tests.laws.test_probe_laws import LEFT_OUT, given
from tests.support.weights import disturb

NAMES = [name for name in load().names("model") if name not in LEFT_OUT]
PROGRAMS = ("classification", "segmentation", "sequence", "language")


def small(name: str) -> tuple[str, nn.Module, int, int]:
    """The task of a model of the catalog, the model in small, its classes and its channels."""
    component = load().find("model", name)
    (task,) = component.tasks
    params = {key: value for key, value in SMALL.items() if key in component.parameters["properties"]}
    facts = WORDS.get(task) or load().find("data", DATA[task]).facts
    assert facts is not None
    build = catalog.build("model", name, params)
    with torch.device("meta"):
        size = sum(part.numel() for part in build(facts["classes"], facts["channels"]).parameters())
    if size > SMALL_PARAMETERS:
        pytest.skip("a published size of a model that is here in small")
    torch.manual_seed(0)
    module = build(facts["classes"], facts["channels"]).eval()
    disturb(module)
    return task, module, facts["classes"], facts["channels"]


@pytest.mark.sampled
@pytest.mark.parametrize("name", NAMES)
def test_no_model_of_the_catalog_is_refused_for_its_gradients_or_blamed_for_its_outputs(
    name: str, tmp_path: Path
) -> None:
    task, module, classes, channels = small(name)
    inputs = given(task, module, channels, classes)
    model = wrap(module, [0.5] * channels, [0.25] * channels, (0.0, 1.0) if "regression" in task else None)
    if task != "control":  # actions are no classes; a policy has a wrapper of its own
        assert probability_evidence(model.eval(), inputs) == {}
    if task in PROGRAMS:
        how: dict[str, Any] = {"task": task, "channels": channels, "image_size": inputs.shape[-1]}
        if task in ("sequence", "language"):
            how = {"task": task, "words": channels, "length": 12}
        assert_gradients_kept(module, tmp_path / "net.pt2", how)


def assert_gradients_kept(module: nn.Module, path: Path, how: dict[str, Any]) -> None:
    """A model may call what no program may: it is then refused before its gradients are compared."""
    try:
        done = export_program(module, path, **how)
    except CannotExport as error:
        if not str(error).startswith("as a program it would be refused: it calls"):
            raise
        pytest.skip(str(error))
    assert done.gradients_compared


class Sigmoid(nn.Module):
    """A model with a sigmoid behind each logit."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities of the shape of the logits."""
        return torch.sigmoid(self.network(x))


@pytest.mark.parametrize("name", ["vit", "segmenter"])
def test_the_same_models_with_a_sigmoid_are_told(name: str) -> None:
    task, module, classes, channels = small(name)
    model = wrap(Sigmoid(module), [0.5] * channels, [0.25] * channels).eval()
    assert probability_evidence(model, given(task, module, channels, classes)) == {"probabilities": 4}


FOREIGN: dict[str, tuple[Any, int]] = {
    "torchvision mobilenet_v3_small": (lambda: models.mobilenet_v3_small(num_classes=5), 32),
    "torchvision shufflenet": (lambda: models.shufflenet_v2_x0_5(num_classes=5), 32),
    "timm resnet10t": (lambda: timm.create_model("resnet10t", num_classes=5), 32),
    "timm mobilenetv3": (lambda: timm.create_model("mobilenetv3_small_050", num_classes=5), 32),
    "timm vit": (
        lambda: timm.create_model("vit_tiny_patch16_224", num_classes=5, img_size=32, patch_size=8, depth=2),
        32,
    ),
}


@pytest.mark.sampled
@pytest.mark.parametrize("name", FOREIGN)
def test_models_of_libraries_are_neither_refused_nor_blamed(name: str, tmp_path: Path) -> None:
    build, size = FOREIGN[name]
    torch.manual_seed(0)
    module = build().eval()
    disturb(module)
    images = torch.rand(4, 3, size, size)
    assert probability_evidence(wrap(module, [0.5] * 3, [0.25] * 3).eval(), images) == {}
    assert export_program(module, tmp_path / "net.pt2", image_size=size).gradients_compared
