"""Faults planted in a model, a kernel and a training: the emulated device catches each by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.attacks.adversarial.pgd import pgd
from assay.attacks.randomness import Randomness
from assay.workers.evaluation.engine.attack import slots
from assay.workers.evaluation.engine.protocols import attack_pixel
from tests.support import networks
from tests.support.emulated_device.device import EmulatedDevice, emulated_device
from tests.support.emulated_device.rules import DeviceMixError, NotDeterministicError, PinnedMemoryError
from tests.workers.training import standins


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


class Fault(nn.Module):
    """A layer with a fault."""

    def __init__(self, fault: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        return self.fault(x)


def planted(fault: Callable[[Tensor], Tensor]) -> nn.Module:
    """A classifier of digits with a fault in it."""
    return nn.Sequential(Fault(fault), networks.network("convolutional"))


def attacked(model: nn.Module, device: EmulatedDevice) -> None:
    images, labels = networks.digits()
    attack_pixel(
        pgd(epsilon=0.1, steps=3),
        model.to(device.device),
        lambda rows: images[list(rows)],
        labels[:4],
        list("abcd"),
        randomness=Randomness(0, "pgd"),
        batch_size=4,
        dtype="float32",
        device=device.device,
    )


def mixed(images: Tensor) -> Tensor:
    return images * torch.ones(8, 8)


def reflected(images: Tensor) -> Tensor:
    return functional.pad(images, (1, 1, 1, 1), mode="reflect")[..., 1:-1, 1:-1]


def asked(images: Tensor) -> Tensor:
    return images / images.detach().amax().item()


def test_a_model_without_a_fault_runs_under_an_attack(device: EmulatedDevice) -> None:
    attacked(planted(lambda images: images), device)


def test_a_planted_device_mix_is_caught_by_name(device: EmulatedDevice) -> None:
    with pytest.raises(DeviceMixError, match=r"aten\.mul\.Tensor: .* same device, but other is on the CPU"):
        attacked(planted(mixed), device)


def test_a_planted_operator_without_a_deterministic_algorithm_is_caught_by_name(
    device: EmulatedDevice,
) -> None:
    with pytest.raises(NotDeterministicError, match=r"aten\.reflection_pad2d_backward"):
        attacked(planted(reflected), device)


def test_the_same_operator_is_allowed_where_nothing_deterministic_is_demanded() -> None:
    with emulated_device(deterministic=False) as device:
        attacked(planted(reflected), device)


def test_a_planted_item_is_caught_by_name_and_line(device: EmulatedDevice) -> None:
    attacked(planted(asked), device)
    line = f"tests/laws/{__name__.rpartition('.')[2]}.py:{asked.__code__.co_firstlineno + 1}"
    found = {place.operator: count for place, count in device.waits.items() if place.line == line}
    assert found.keys() == {"aten._local_scalar_dense.default"}
    assert found["aten._local_scalar_dense.default"] >= 3


def on_the_host(images: Tensor) -> Tensor:
    return torch.from_numpy(images.detach().numpy()).to(images.device) + images


def as_an_array(images: Tensor) -> Tensor:
    return images * float(np.asarray(images.detach()).max())


@pytest.mark.parametrize("fault", [on_the_host, as_an_array])
def test_a_planted_conversion_to_numpy_is_caught_by_name(
    fault: Callable[[Tensor], Tensor], device: EmulatedDevice
) -> None:
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy") as caught:
        attacked(planted(fault), device)
    assert fault.__name__ in [entry.name for entry in caught.traceback]


def test_a_planted_early_reading_of_pinned_memory_is_caught_by_name(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = slots._Flags.read

    def hasty(self: Any, state: Any) -> Tensor:
        read(self, state)
        return self._copy._values["flags"] | state["done"]  # of this step, not of the last one

    monkeypatch.setattr(slots._Flags, "read", hasty)
    with pytest.raises(PinnedMemoryError, match=r"aten\.\S+or\S* reads pinned memory before the copy"):
        attacked(planted(lambda images: images), device)


def test_planted_pinned_memory_of_the_device_is_caught_by_name(device: EmulatedDevice) -> None:
    with pytest.raises(PinnedMemoryError, match="only dense CPU tensors can be pinned"):
        attacked(planted(lambda images: images.pin_memory()), device)


@pytest.mark.trains
def test_planted_faults_of_a_training_are_caught_by_name(device: EmulatedDevice, tmp_path: Path) -> None:
    faults: list[tuple[Callable[[Tensor], Tensor], type[Exception], str]] = [
        (lambda x: x + torch.ones(8, 8), DeviceMixError, r"aten\.add\.Tensor: .* other is on the CPU"),
        (reflected, NotDeterministicError, r"aten\.reflection_pad2d_backward"),
        (on_the_host, TypeError, "can't convert cuda:0"),
    ]
    for number, (fault, error, words) in enumerate(faults):
        layers = standins.classifier()
        model = nn.Sequential(nn.Conv2d(1, 1, 1), Fault(fault), *layers)
        with pytest.raises(error, match=words):
            standins.run(tmp_path / str(number), classifier=model, device=device.device)
