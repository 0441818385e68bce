"""Machinery of corruptions: division that rounds alike on every device, and threads."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from assay.attacks.corruptions.imaging import corruption
from assay.attacks.corruptions.imaging.corruption import TOP, divided, for_each
from assay.attacks.corruptions.imaging.draws import normal
from assay.attacks.randomness import Randomness
from tests.support.emulated_device.device import emulated_device


def test_every_level_is_divided_to_the_last_bit_on_a_device() -> None:
    levels = torch.arange(TOP + 1, dtype=torch.float64)
    exact = torch.tensor([level / TOP for level in range(TOP + 1)], dtype=torch.float64)
    assert torch.equal(divided(levels, TOP), exact)
    with emulated_device() as device:
        there = levels.to(device.device)
        device.forget_counts()
        found = divided(there, TOP)
        assert not device.waits
        assert not device.uploads
        assert torch.equal(found.cpu(), exact)


def test_results_come_in_order_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))

    def draw(generator: torch.Generator) -> Tensor:
        return normal(generator, 50, 60)

    ids = [str(number) for number in range(20)]
    serial, threaded = (
        for_each(Randomness(0, "noise").generators(ids), draw, torch.device(kind)) for kind in ("cpu", "cuda")
    )
    assert torch.equal(torch.stack(serial), torch.stack(threaded))
    assert for_each([], draw, torch.device("cuda")) == []


def test_a_job_on_a_cpu_starts_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruption, "ThreadPoolExecutor", None)
    assert for_each([1, 2], str, torch.device("cpu")) == ["1", "2"]
