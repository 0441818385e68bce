"""Every attack has the outcomes with captured passes of the model that it has without them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from assay.attacks.adversarial import pgd
from assay.attacks.ensemble import stages_of
from assay.attacks.randomness import Randomness
from assay.service.catalog.catalog import load
from assay.workers import catalog
from assay.workers.evaluation.engine import captured
from assay.workers.evaluation.engine.captured import Captures
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from tests.laws import test_segmentation_attack_laws as segmentation
from tests.laws import test_series_laws as series
from tests.laws.test_attack_laws import IDS, Network, make
from tests.laws.test_emulated_attacks import PAPER, SEGMENTATION, SERIES, N, usual
from tests.laws.test_emulated_models import KINDS, LIBRARIES, small
from tests.laws.test_emulated_waits import watched
from tests.support import networks
from tests.support.emulated_device.device import EmulatedDevice, emulated_device

SLOTS = 6
# The kernel's own, and what a captured pass copies.
LAUNCHES_OF_A_CAPTURED_STEP = 60
# Tokens have no gradient, and no captured pass.
OF_IMAGES = [
    name
    for name in KINDS
    if {"classification", "segmentation", "series"} & set(load().find("model", name).tasks)
]


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    """Captures a pass when it comes for the second time."""
    with patch.object(captured, "FIRST", 1):
        yield


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


def outcomes(
    evaluation: Any,
    attack: Any,
    device: EmulatedDevice,
    *,
    capture: bool,
    model: nn.Module | None = None,
    images: Tensor | None = None,
) -> Any:
    if model is None or images is None:
        (images, labels), model = networks.digits(), Network().eval().double()
    else:
        images = images.float().repeat(N, 1, 1, 1)[:N].clamp(0, 1)
        labels = model(images.double()).argmax(1)
    return evaluation(
        attack,
        copy.deepcopy(model).to(device.device),
        lambda rows: images[list(rows)],
        labels[:N],
        IDS[:N],
        randomness=Randomness(0, attack.name),
        batch_size=SLOTS,
        dtype="float64",
        device=device.device,
        keep_adversarial=True,
        capture=capture,
    )


def compare(evaluation: Any, attack: Any, device: EmulatedDevice) -> None:
    plain, replayed = (outcomes(evaluation, attack, device, capture=capture) for capture in (False, True))
    for column in ("prediction", "correct", "correct5", "forward", "backward"):
        assert torch.equal(getattr(replayed, column), getattr(plain, column)), column
    torch.testing.assert_close(replayed.adversarial, plain.adversarial, rtol=0, atol=1e-6)
    assert "captured" not in plain.noted
    found = replayed.noted.get("captured", {})
    assert found.get("refused") is None
    if attack.backend == "native" and getattr(attack, "steps", 0) > 2:
        assert found["replays"] > 0


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), usual())
def test_an_attack_on_classifiers(
    module: ModuleType, name: str, params: dict[str, Any], device: EmulatedDevice
) -> None:
    compare(attack_pixel, make(module, name, params), device)


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), PAPER)
def test_an_attack_as_in_the_papers_code(
    module: ModuleType, name: str, params: dict[str, Any], device: EmulatedDevice
) -> None:
    compare(attack_paper, make(module, name, params), device)


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), SEGMENTATION)
def test_an_attack_on_segmentation_models(name: str, params: dict[str, Any], device: EmulatedDevice) -> None:
    torch.manual_seed(0)
    model = segmentation.Network().double().eval()
    images = torch.rand(5, 3, segmentation.SIDE, segmentation.SIDE)
    examples = images, model(images.double()).argmax(1).to(torch.uint8)
    model, params = model.to(device.device), params | {"steps": 6}
    with patch.object(segmentation, "IDS", segmentation.IDS[:5]):
        plain, replayed = (
            segmentation.run(name, params, model, examples, device=device.device, capture=capture)
            for capture in (False, True)
        )
    assert replayed.columns() == plain.columns()
    assert replayed.noted["captured"]["replays"] > 0
    torch.testing.assert_close(replayed.adversarial, plain.adversarial, rtol=0, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize(("attack", "norm"), SERIES)
def test_an_attack_on_series(attack: str, norm: str, device: EmulatedDevice) -> None:
    whole = series.shard()
    moved = replace(whole, classifier=copy.deepcopy(whole.classifier).to(device.device), device=device.device)
    plain = series.attacked(attack, norm, moved)
    replayed = series.attacked(attack, norm, replace(moved, capture=True))
    for column in ("prediction", "correct", "forward", "backward"):
        assert torch.equal(getattr(replayed, column), getattr(plain, column)), column
    torch.testing.assert_close(replayed.adversarial, plain.adversarial, rtol=0, atol=1e-6)


def of_a_library(name: str) -> tuple[nn.Module, Tensor]:
    model: nn.Module = catalog.build("model", name, {"architecture": LIBRARIES[name]})(10, 3).double()
    return model, torch.rand(2, 3, 32, 32, dtype=torch.float64)


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*OF_IMAGES, *LIBRARIES])
def test_a_model_is_captured(name: str, device: EmulatedDevice) -> None:
    model, inputs = small(name) if name in OF_IMAGES else of_a_library(name)
    captures = Captures()
    passes = Passes(model.eval().to(device.device), device.device, captures=captures)
    with torch.enable_grad():
        for _ in range(4):
            points = inputs.to(device.device).requires_grad_(True)
            torch.autograd.grad(passes(points).square().sum(), points)
    found = captures.noted()["captured"]
    assert found == {"replays": 3, "refused": None}


@pytest.mark.costly
def test_a_step_of_pgd_on_a_transformer_has_few_launches() -> None:
    counts = []
    attack = make(pgd, "pgd", {"epsilon": 1e-3, "steps": 8, "norm": "Linf"})
    model, inputs = small("vit")
    for capture in (False, True):
        with emulated_device() as device, watched(map(type, stages_of(attack)), device) as found:
            outcomes(attack_pixel, attack, device, capture=capture, model=model.eval(), images=inputs)
        assert not found[4].waits
        counts.append(found[4].launches)
    assert counts[1] <= LAUNCHES_OF_A_CAPTURED_STEP < counts[0] / 2, counts
