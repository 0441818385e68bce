"""Every attack of the catalog gives on the emulated device the outcomes that it gives on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.attack import slots
from assay.workers.evaluation.engine.protocols import attack_paper, attack_pixel
from tests.laws import test_segmentation_attack_laws as segmentation
from tests.laws import test_series_laws as series
from tests.laws.test_attack_laws import CASES, IDS, Network, evaluations, make
from tests.support import networks
from tests.support.emulated_device import rules
from tests.support.emulated_device.device import EmulatedDevice, emulated_device

N = 8
CPU = torch.device("cpu")
# Shorter still than in the laws of attacks: one step of each kind is enough here.
SHORTER: dict[str, dict[str, Any]] = {
    "square": {"queries": 30},
    "sparse_rs": {"queries": 30},
    "patch_rs": {"queries": 30},
    "hop_skip_jump": {"queries": 60},
    "autoattack": {"queries": 20},
    "fmn": {"steps": 8},
    "ddn": {"steps": 8},
    "sigma_zero": {"steps": 12},
    "fab": {"iterations": 4, "restarts": 1},
    "fab_t": {"iterations": 3, "targets": 2},
    "apgd_t": {"steps": 5, "targets": 2},
    "pgd": {"steps": 5},
}


def usual() -> list[Any]:
    """The cases of the attacks' laws; of each attack the first runs by default, the others are slow."""
    seen: set[str] = set()
    found = []
    for case in CASES:
        module, name, params = case.values
        marks = [pytest.mark.slow] * (name in seen)
        seen.add(str(name))
        params = params | SHORTER.get(str(name), {})  # type: ignore[operator]
        found.append(pytest.param(module, name, params, id=case.id, marks=marks))
    return found


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    return networks.digits()


@pytest.fixture(scope="module")
def network() -> Network:
    return Network().eval().double()


@contextmanager
def late_flags() -> Iterator[None]:
    """On the CPU too flags are read one step late: batches are then the same, and with them the rounding."""
    begin = slots._Flags.__init__

    def late(self: Any, given: bool | None) -> None:
        begin(self, True if given is None else given)

    with patch.object(slots._Flags, "__init__", late):
        yield


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), usual())
def test_an_attack_on_classifiers(
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    network: Network,
    digits: tuple[Tensor, Tensor],
    device: EmulatedDevice,
) -> None:
    compare_outcomes(attack_pixel, module, name, params, network, digits, device)


# The attacks that may be run as the code of the papers does, on normalised images.
PAPER = [case for case in usual() if len(evaluations(*case.values)) == 2]


@pytest.mark.sampled
@pytest.mark.parametrize(("module", "name", "params"), PAPER)
def test_an_attack_as_in_the_papers_code(
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    network: Network,
    digits: tuple[Tensor, Tensor],
    device: EmulatedDevice,
) -> None:
    compare_outcomes(attack_paper, module, name, params, network, digits, device)


def compare_outcomes(
    evaluation: Any,
    module: ModuleType,
    name: str,
    params: dict[str, Any],
    network: Network,
    digits: tuple[Tensor, Tensor],
    device: EmulatedDevice,
) -> None:
    """Asserts that an attack has the outcomes on the device that it has on the CPU."""

    def run(where: torch.device) -> Any:
        attack = make(module, name, params)
        return evaluation(
            attack,
            copy.deepcopy(network).to(where),
            lambda rows: digits[0][list(rows)],
            digits[1][:N],
            IDS[:N],
            randomness=Randomness(0, attack.name),
            batch_size=6,
            dtype="float64",
            device=where,
            keep_adversarial=True,
        )

    there = run(device.device)
    with late_flags():
        here = run(CPU)
    for column in ("prediction", "correct", "correct5", "forward", "backward"):
        assert torch.equal(getattr(there, column), getattr(here, column)), column
    if not torch.allclose(there.adversarial, here.adversarial, rtol=0, atol=1e-6):
        # CUDA's division by a number has another last bit: the largest entries of a gradient may be others.
        with patch.object(rules, "quotient", lambda *_: None):
            there = run(device.device)
    torch.testing.assert_close(there.adversarial, here.adversarial, rtol=0, atol=1e-6)


def sample(cases: list[Any], *names: str) -> list[Any]:
    """The cases; those of other names are slow."""
    return [
        pytest.param(*case.values, id=case.id, marks=[] if case.id in names else [pytest.mark.slow])
        for case in cases
    ]


SEGMENTATION = sample(segmentation.CASES, "segpgd", "segmentation_apgd-js")
SERIES = sample(series.ATTACKS, "pgd-Linf", "apgd_dlr-L2")


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "params"), SEGMENTATION)
def test_an_attack_on_segmentation_models(name: str, params: dict[str, Any], device: EmulatedDevice) -> None:
    params = params | {"steps": 4}
    torch.manual_seed(0)
    model = segmentation.Network().double().eval()
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(5, 3, segmentation.SIDE, segmentation.SIDE, generator=generator)
    examples = images, model(images.double()).argmax(1).to(torch.uint8)
    with patch.object(segmentation, "IDS", segmentation.IDS[:5]):
        there = segmentation.run(
            name, params, copy.deepcopy(model).to(device.device), examples, device=device.device
        )
        with late_flags():
            here = segmentation.run(name, params, model, examples)
    assert there.columns() == here.columns()
    assert there.adversarial is not None
    assert here.adversarial is not None
    torch.testing.assert_close(there.adversarial, here.adversarial, rtol=0, atol=1e-6)


@pytest.mark.sampled
@pytest.mark.parametrize(("attack", "norm"), SERIES)
def test_an_attack_on_series(attack: str, norm: str, device: EmulatedDevice) -> None:
    on_cpu = series.shard()
    moved = replace(
        on_cpu, classifier=copy.deepcopy(on_cpu.classifier).to(device.device), device=device.device
    )
    there = series.attacked(attack, norm, moved)
    with late_flags():
        here = series.attacked(attack, norm, on_cpu)
    for column in ("prediction", "correct", "forward", "backward"):
        assert torch.equal(getattr(there, column), getattr(here, column)), column
    torch.testing.assert_close(there.adversarial, here.adversarial, rtol=0, atol=1e-6)
