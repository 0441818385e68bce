"""Laws of every attack on segmentation models in the catalog; new ones are covered automatically."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.segmentation.kernel import PixelEnsemble
from assay.service.catalog.catalog import load
from assay.workers import catalog
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.evaluation.engine.segmentation.attack import attack_segmentation
from assay.workers.evaluation.engine.segmentation.attacked import AttackedPixels
from assay.workers.evaluation.engine.segmentation.pixel_counts import segment

N, K, SIDE, EPSILON = 9, 3, 8, 0.06
# What the last judgement adds to the passes of an attack with one loss.
JUDGING_PASSES = 1
IDS = [f"image {row}" for row in range(N)]
COMPONENTS = [one for one in load().list("attack") if "segmentation" in one.tasks]


def variants(name: str) -> list[dict[str, Any]]:
    """Few steps, and every available loss."""
    common = {"epsilon": EPSILON, "steps": 10}
    offered = load().find("attack", name).parameters["properties"].get("loss")
    return [common] if offered is None else [common | {"loss": loss} for loss in offered["enum"]]


CASES = [
    pytest.param(one.name, params, id="-".join([one.name, *filter(None, [params.get("loss")])]))
    for one in COMPONENTS
    for params in variants(one.name)
]


class Network(nn.Module):
    """A segmentation model with everything that a run could disturb: dropout, batch norm, frozen weights."""

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Dropout(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(12, K, 3, padding=1))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers((images - 0.4) / 0.3)
        return logits


@pytest.fixture(scope="module")
def network() -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Network().double().eval()


@pytest.fixture(scope="module")
def examples(network: Network) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(N, 3, SIDE, SIDE, generator=generator)
    odd = torch.rand(N, SIDE, SIDE, generator=generator)
    maps = network(images.double()).argmax(1)
    maps = torch.where(odd < 0.1, (maps + 1) % K, maps).masked_fill(odd > 0.9, IGNORE)
    return images, maps.to(torch.uint8)


def run(
    name: str, params: dict[str, Any], model: nn.Module, examples: tuple[Tensor, Tensor], **changes: Any
) -> AttackedPixels:
    ensemble: PixelEnsemble = catalog.build("attack", name, params)()
    images, maps = examples
    options: dict[str, Any] = {"seed": 0, "batch_size": 4, "keep_adversarial": True} | changes

    def images_of(rows: Sequence[int]) -> Tensor:
        return images[list(rows)]

    return attack_segmentation(
        ensemble,
        model,
        images_of,
        lambda rows: maps[list(rows)],
        IDS,
        classes=K,
        class_weights=(1.0, 2.0, 0.5),
        dtype="float64",
        **options,
    )


def test_there_are_attacks() -> None:
    assert {"segmentation_pgd", "segpgd", "segmentation_apgd", "sea"} <= {one.name for one in COMPONENTS}
    assert all(one.protocols == ["pixel"] for one in COMPONENTS)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), CASES)
def test_it_stays_in_its_ball_and_in_the_range_and_accuracy_does_not_rise(
    name: str, params: dict[str, Any], network: Network, examples: tuple[Tensor, Tensor]
) -> None:
    images, maps = examples
    found = run(name, params, network, examples)
    clean = segment(
        network,
        lambda rows: images[list(rows)],
        lambda rows: maps[list(rows)],
        IDS,
        classes=K,
        batch_size=N,
        dtype="float64",
    )
    assert found.names[0] == "clean"
    assert torch.equal(found.intersection[:, 0], clean.intersection)
    assert torch.equal(found.predicted[:, 0], clean.predicted)
    assert torch.equal(found.target, clean.target)
    right = found.intersection.sum(2)
    assert (right <= right[:, :1]).all()
    assert (right[:, 1:].sum(0) < right[:, 0].sum()).all()
    assert found.adversarial is not None
    assert found.adversarial.min() >= 0
    assert found.adversarial.max() <= 1
    assert float((found.adversarial - images).abs().max()) <= EPSILON + 1e-12
    # The report matches the kept images.
    with torch.no_grad():
        prediction = network(found.adversarial).argmax(1)
    counted = ((prediction == maps) & (maps != IGNORE)).flatten(1).sum(1)
    assert torch.equal(counted, right.amin(1))
    assert {key: found.flags[key] for key in ("out_of_ball", "out_of_box", "unverified", "nonfinite")} == {
        "out_of_ball": 0,
        "out_of_box": 0,
        "unverified": 0,
        "nonfinite": 0,
    }
    assert found.flags["gradients"] == N


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), CASES)
def test_it_takes_no_more_passes_than_it_declares(
    name: str, params: dict[str, Any], network: Network, examples: tuple[Tensor, Tensor]
) -> None:
    found = run(name, params, network, examples)
    passes = load().find("attack", name).passes
    assert passes is not None
    names = {"params": SimpleNamespace(**params), "__builtins__": {}}
    forward, backward = (eval(text, names) for text in (passes.forward, passes.backward))
    assert int(found.forward.max()) <= forward + JUDGING_PASSES
    assert 0 < int(found.backward.max()) <= backward


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), CASES)
def test_a_seed_repeats_and_batches_do_not_matter(
    name: str, params: dict[str, Any], network: Network, examples: tuple[Tensor, Tensor]
) -> None:
    first, again, other = (run(name, params, network, examples, batch_size=size) for size in (4, 4, 9))
    assert first.columns() == again.columns()
    assert first.adversarial is not None
    assert again.adversarial is not None
    assert torch.equal(first.adversarial, again.adversarial)
    assert first.columns() == other.columns()
    torch.testing.assert_close(first.adversarial, other.adversarial, rtol=0, atol=1e-9)
    if load().find("attack", name).parameters["properties"].get("random_start", {}).get("default", True):
        moved = run(name, params, network, examples, seed=1)
        assert not torch.equal(first.adversarial, moved.adversarial)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), CASES)
def test_the_model_is_left_as_it_was(
    name: str, params: dict[str, Any], network: Network, examples: tuple[Tensor, Tensor]
) -> None:
    model = copy.deepcopy(network).train()
    model.layers[1].eval()
    model.layers[0].weight.requires_grad_(False)
    state = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    flags = [parameter.requires_grad for parameter in model.parameters()]
    run(name, params, model, examples)
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == flags
    assert all(parameter.grad is None for parameter in model.parameters())
