"""The part of a GPU that a worker has where several share it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from assay.workers import accelerator
from assay.workers.jobs.cost import choose_batch_size
from assay.workers.jobs.session import resolve_device
from tests.support.emulated_device.backend import TOTAL
from tests.support.emulated_device.device import EmulatedDevice, emulated_device

MIB = 2**20


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedDevice]:
    monkeypatch.setenv(accelerator.WORKERS_PER_GPU, "4")
    with emulated_device() as device:
        yield device


def test_a_worker_has_its_part_of_the_memory(shared: EmulatedDevice) -> None:
    assert accelerator.memory(shared.device) == (TOTAL // 4, TOTAL // 4, 0)
    assert accelerator.total_bytes(shared.device) == TOTAL // 4
    kept = torch.zeros(MIB, dtype=torch.uint8, device=shared.device)
    assert accelerator.memory(shared.device) == (TOTAL // 4 - MIB, TOTAL // 4, MIB)
    # What others hold counts once it reaches into the part.
    shared.memory.others = TOTAL - 3 * MIB
    assert accelerator.memory(shared.device) == (2 * MIB, TOTAL // 4, MIB)
    del kept


def test_a_job_allocates_no_more_than_its_part() -> None:
    with emulated_device(memory=8 * MIB) as device, pytest.MonkeyPatch.context() as changed:
        changed.setenv(accelerator.WORKERS_PER_GPU, "4")
        assert resolve_device("cuda") == device.device
        kept = torch.zeros(MIB, dtype=torch.uint8, device=device.device)
        with pytest.raises(torch.OutOfMemoryError):
            torch.zeros(2 * MIB, dtype=torch.uint8, device=device.device)
        del kept


def test_automatic_batches_are_chosen_for_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    with emulated_device() as device:
        alone = choose_batch_size("auto", device.device, 64 * MIB)
        monkeypatch.setenv(accelerator.WORKERS_PER_GPU, "4")
        assert choose_batch_size("auto", device.device, 64 * MIB) == alone // 4


def test_the_share_of_the_time_is_known_where_the_driver_tells_it() -> None:
    with emulated_device():
        assert accelerator.busy_share() is None
        accelerator.driver.utilized = 61
        assert accelerator.busy_share() == 0.61


def test_a_worker_alone_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(accelerator.WORKERS_PER_GPU, raising=False)
    with emulated_device(memory=8 * MIB) as device:
        resolve_device("cuda")
        assert accelerator.memory(device.device) == (8 * MIB, 8 * MIB, 0)
        torch.zeros(7 * MIB, dtype=torch.uint8, device=device.device)
