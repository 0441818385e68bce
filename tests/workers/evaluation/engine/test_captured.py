"""Passes of a model as graphs of a device: equal bits, or the model's own pass and the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from assay.workers.evaluation.engine.captured import FIRST, HELD, Captures
from assay.workers.evaluation.engine.forward import Passes
from tests.support.emulated_device.device import EmulatedDevice, emulated_device
from tests.support.small_network import SmallNetwork, differentiated

B = 6


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as device:
        yield device


def batches(device: EmulatedDevice, rows: int = B, count: int = FIRST + 4) -> Iterator[Tensor]:
    draws = torch.Generator().manual_seed(1)
    for _ in range(count):
        yield torch.rand(rows, 3, 4, 4, generator=draws).to(device.device)


def both(device: EmulatedDevice, between: Callable[[Tensor], Tensor] = torch.relu) -> tuple[Passes, Passes]:
    """Passes that may be captured, and the same without."""
    network = SmallNetwork(between, depth=10).to(device.device)
    captured = Passes(network, device.device, captures=Captures())
    return captured, Passes(network, device.device)


def evidence(passes: Passes) -> dict[str, object]:
    assert passes.captures is not None
    found: dict[str, object] = passes.captures.noted().get("captured", {})
    return found


@pytest.mark.costly
def test_captured_passes_give_the_models_bits_with_fewer_launches(device: EmulatedDevice) -> None:
    captured, plain = both(device)
    kept = []
    for images in batches(device):
        device.forget_counts()
        found = differentiated(captured, images)
        launches, _ = device.launches, device.forget_counts()
        expected = differentiated(plain, images)
        kept.append((found, expected, launches, device.launches))
    # All at the end: no result may be memory that a later replay overwrites.
    for found, expected, _, _ in kept:
        assert all(torch.equal(one.cpu(), other.cpu()) for one, other in zip(found, expected, strict=True))
    assert [one < other for _, _, one, other in kept] == [False] * (FIRST + 1) + [True] * 3
    assert evidence(captured) == {"replays": 4, "refused": None}


def test_every_gradient_of_a_pass_is_right(device: EmulatedDevice) -> None:
    captured, plain = both(device)
    first, second = list(batches(device))[:2]
    for images in batches(device):
        differentiated(captured, images)
    found = []
    for passes in (captured, plain):
        with torch.enable_grad():
            points = [images.detach().requires_grad_(True) for images in (first, second)]
            logits = [passes(one) for one in points]
            gradients = [
                torch.autograd.grad(logits[which][:, column].sum(), points[which], retain_graph=True)[0]
                for column in (0, 3)
                for which in (1, 0)  # the latest pass, then an earlier pass
            ]
        found.append([one.detach().cpu() for one in (*logits, *gradients)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert evidence(captured) == {"replays": 6, "refused": None}


def test_images_that_were_changed_have_no_gradient(device: EmulatedDevice) -> None:
    captured, _ = both(device)
    for images in batches(device):
        differentiated(captured, images)
    (images,) = batches(device, count=1)
    with torch.enable_grad():
        logits = captured(images.requires_grad_(True))
        with torch.no_grad():
            images.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            torch.autograd.grad(logits.sum(), images)


@pytest.mark.parametrize(
    ("rows", "replays"), [(B - 1, True), (B // 2 + 1, True), (B // 2, False), (B + 1, False)]
)
def test_a_smaller_batch_fills_a_captured_one_up(device: EmulatedDevice, rows: int, replays: bool) -> None:
    captured, plain = both(device)
    for images in batches(device):
        captured(images)
    before = evidence(captured)["replays"]
    (images,) = batches(device, rows, 1)
    for one, other in zip(differentiated(captured, images), differentiated(plain, images), strict=True):
        assert one.shape == other.shape
        assert torch.equal(one.cpu(), other.cpu())
    assert evidence(captured)["replays"] == before, "the captured pass has no gradient"
    assert torch.equal(captured(images).cpu(), plain(images).cpu())
    assert (evidence(captured)["replays"] != before) is replays


def test_without_a_gradient_too(device: EmulatedDevice) -> None:
    captured, plain = both(device)
    with torch.no_grad():
        for images in batches(device):
            assert torch.equal(captured(images).cpu(), plain(images).cpu())
    assert evidence(captured) == {"replays": 4, "refused": None}


def waiting(hidden: Tensor) -> Tensor:
    return hidden if float(hidden.detach().sum()) < 0 else torch.relu(hidden)


def sending(hidden: Tensor) -> Tensor:
    return hidden + torch.ones(1).to(hidden.device)


def random(hidden: Tensor) -> Tensor:
    return hidden + torch.rand_like(hidden)


class Counting:
    """State of Python, which a graph has from the time of its capture."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, hidden: Tensor) -> Tensor:
        self.calls += 1
        return hidden * self.calls


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (waiting, "not permitted when stream is capturing"),
        (sending, "not permitted when stream is capturing"),
        (random, "differ from the model's own"),
        (Counting(), "differ from the model's own"),
    ],
)
def test_a_model_that_cannot_be_captured_runs_as_ever(
    device: EmulatedDevice, between: Callable[[Tensor], Tensor], reason: str
) -> None:
    captured, _ = both(device, between)
    for images in batches(device):
        differentiated(captured, images)
    found = evidence(captured)
    assert found["replays"] == 0
    assert reason in str(found["refused"])
    assert not captured.in_whole_batches


def test_random_numbers_of_later_passes_do_not_depend_on_a_refused_capture(device: EmulatedDevice) -> None:
    captured, plain = both(device, random)
    answers = []
    for passes in (captured, plain):
        torch.manual_seed(3)
        answers.append([passes(images).cpu() for images in batches(device)])
    assert all(torch.equal(one, other) for one, other in zip(*answers, strict=True))


def test_captures_are_given_up_where_memory_is_short(device: EmulatedDevice) -> None:
    captured, plain = both(device)
    for images in batches(device):
        captured(images)
    failing = [True]

    def pass_of(images: Tensor) -> Tensor:
        if failing:
            failing.clear()
            raise torch.OutOfMemoryError("no room")
        return plain.whole(images)

    (images,) = batches(device, count=1)
    assert captured.in_parts(images, pass_of)[0].shape == (B, 5)
    assert captured.limit.rows is None, "graphs go before batches are halved"
    assert evidence(captured)["refused"] == "memory was short"


def test_no_room_for_a_capture_is_no_error() -> None:
    with emulated_device() as device:
        captured, _ = both(device)
        for images in batches(device, count=FIRST):
            captured(images)
        device.squeeze(1.2)
        assert captured(images).shape == (B, 5)
        assert evidence(captured) == {"replays": 0, "refused": "memory was short"}


def test_so_many_shapes_are_held(device: EmulatedDevice) -> None:
    captured, _ = both(device)
    sizes = [2**power for power in range(HELD + 1)]
    for rows in sizes:
        for images in batches(device, rows, FIRST + 1):
            captured(images)
    assert evidence(captured)["replays"] == HELD


@pytest.mark.costly
def test_bfloat16_has_passes_of_its_own(device: EmulatedDevice) -> None:
    captured, plain = both(device)
    rough = [passes.with_bfloat16_gradients() for passes in (captured, plain)]
    for images in batches(device):
        found, expected = (differentiated(passes, images) for passes in rough)
        assert all(torch.equal(one.cpu(), other.cpu()) for one, other in zip(found, expected, strict=True))
    assert evidence(captured) == {"replays": 8, "refused": None}


def test_a_cpu_captures_nothing() -> None:
    network = SmallNetwork(depth=10)
    captured = Passes(network, torch.device("cpu"), captures=Captures())
    for _ in range(FIRST + 2):
        captured(torch.rand(B, 3, 4, 4))
    assert evidence(captured) == {}
    assert not captured.in_whole_batches
