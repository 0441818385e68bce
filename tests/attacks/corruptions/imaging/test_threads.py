"""Threads change neither order nor draws."""

from __future__ import annotations

import os

import pytest
import torch
from torch import Tensor

from assay.attacks.corruptions.imaging import threads
from assay.attacks.corruptions.imaging.draws import normal
from assay.attacks.corruptions.imaging.threads import for_each
from assay.attacks.randomness import Randomness

GPU = torch.device("cuda")


def test_results_come_in_order_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))

    def draw(generator: torch.Generator) -> Tensor:
        return normal(generator, 50, 60)

    ids = [str(number) for number in range(20)]
    serial, threaded = (
        for_each(Randomness(0, "noise").generators(ids), draw, device)
        for device in (torch.device("cpu"), GPU)
    )
    assert torch.equal(torch.stack(serial), torch.stack(threaded))
    assert for_each([], draw, GPU) == []


def test_a_job_on_a_cpu_starts_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "ThreadPoolExecutor", None)
    assert for_each([1, 2], str, torch.device("cpu")) == ["1", "2"]
