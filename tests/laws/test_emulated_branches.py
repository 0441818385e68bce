"""What the workers ask of CUDA's driver they ask of the emulated device's, and go the way of CUDA."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.attacks.adversarial.square import square
from assay.attacks.randomness import Randomness
from assay.service.contract.fleet.worker_records import DeviceTest
from assay.workers import accelerator
from assay.workers.evaluation.engine.protocols import attack_pixel
from assay.workers.evaluator import gpu_memory
from assay.workers.jobs import self_test
from assay.workers.jobs.failures import describe
from assay.workers.training.distributed import launch
from assay.workers.training.distributed.rank import join
from assay.workers.training.randomness import caller_generators_restored, seed_generators
from tests.support import networks
from tests.support.emulated_device.backend import TOTAL
from tests.support.emulated_device.device import EmulatedDevice, emulated_device


@pytest.fixture
def device() -> Iterator[EmulatedDevice]:
    with emulated_device() as opened:
        yield opened


def found_by_the_self_test() -> DeviceTest:
    """What the self-test of the workers finds on the only GPU."""
    report = self_test.run(
        {"kind": "self_test", "folder": "", "weights": None, "device_classes": ["cuda", "cpu"]}
    )
    assert report["deterministic"]
    cpu, gpu = report["devices"]
    assert (cpu["device"], cpu["fault"], cpu["capability"]) == ("cpu", None, None)
    return gpu


def test_the_self_test_computes_on_the_device_and_describes_it(device: EmulatedDevice) -> None:
    assert found_by_the_self_test() == {
        "device": "cuda:0",
        "name": "emulated",
        "fault": None,
        "total": TOTAL,
        "free": TOTAL,
        "capability": "9.0",
    }
    read = {place.line.partition(":")[0] for place in device.waits}
    assert read == {"src/assay/workers/jobs/self_test.py"}
    assert device.peak_bytes > 0


def test_the_self_test_finds_memory_that_others_hold(device: EmulatedDevice) -> None:
    device.memory.others = TOTAL - 1000
    fault = f"only 1,000 of its {TOTAL:,} bytes are free: other processes hold them"
    assert found_by_the_self_test()["fault"] == fault


def test_the_self_test_reports_that_its_sums_find_no_memory() -> None:
    with emulated_device(memory=100_000):
        fault = found_by_the_self_test()["fault"]
    assert fault is not None
    assert fault.startswith("OutOfMemoryError: CUDA out of memory (emulated)")


@pytest.mark.parametrize(
    ("own", "others", "error_type", "retry"),
    [
        (0, 0, "out_of_memory", False),
        (3000, 2000, "out_of_memory", False),
        (1000, 2000, "out_of_memory", False),  # a fifth of all is not much
        (1000, 8500, "device_fault", True),
    ],
)
def test_memory_that_others_hold_is_no_fault_of_the_job(
    own: int, others: int, error_type: str, retry: bool
) -> None:
    with emulated_device(memory=10_240) as device:
        held = torch.empty(own, dtype=torch.uint8, device=device.device)
        device.memory.others = others
        with pytest.raises(torch.OutOfMemoryError) as caught:
            torch.empty(11_000, dtype=torch.uint8, device=device.device)
        failure = describe(caught.value)
    assert len(held) == own
    assert (failure["error_type"], failure["retry"]) == (error_type, retry)
    assert ("other processes hold its memory" in failure["message"]) == retry


def test_progress_comes_with_the_memory_of_the_device(device: EmulatedDevice) -> None:
    held = torch.zeros(1024, device=device.device)
    device.memory.others = 512
    assert gpu_memory() == {"name": "emulated", "total": TOTAL, "used": 4096 + 512, "reserved": 4096}
    assert len(held) == 1024


def test_the_generator_of_the_device_is_seeded_and_restored(device: EmulatedDevice) -> None:
    before = torch.get_rng_state()
    with caller_generators_restored(device.device):
        seed_generators(7, device.device)
        assert accelerator.driver.seeds == [7]
        drawn = torch.rand(3, device=device.device)
    assert torch.equal(torch.get_rng_state(), before)
    with caller_generators_restored(torch.device("cpu")):
        seed_generators(7, torch.device("cpu"))
        assert accelerator.driver.seeds == [7]
        assert torch.equal(torch.rand(3), drawn.cpu())


def test_a_library_that_seeds_leaves_the_generators_as_they_were(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[Any] = []
    monkeypatch.setattr(accelerator.driver, "set_rng_state", lambda _, device: restored.append(device))
    images, labels = networks.digits()
    model = networks.network("convolutional").to(device.device)
    attack = square(epsilon=0.1, queries=5, backend="pyautoattack")
    before = torch.get_rng_state()
    attack_pixel(
        attack,
        model,
        lambda rows: images[list(rows)],
        labels[:8],
        list("abcdefgh"),
        randomness=Randomness(0, attack.name),
        batch_size=8,
        dtype="float32",
        device=device.device,
    )
    assert restored
    assert set(restored) == {device.device}
    assert torch.equal(torch.get_rng_state(), before)


def test_a_training_on_more_devices_than_there_are_is_refused(device: EmulatedDevice, tmp_path: Path) -> None:
    request: Any = {"spec": {"execution": {"device": "cuda", "devices": 2}}}
    with pytest.raises(ValueError, match=r"execution\.devices is 2, but this worker has 1"):
        launch.train_on_devices(request, lambda _: None)


def test_a_process_of_a_training_takes_its_device(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda name, **options: calls.append((name, options))
    )
    join(1, 2, 0, on_gpu=True, timeout=timedelta(seconds=1))
    ((name, options),) = calls
    assert (name, options["device_id"]) == ("nccl", device.device)
    assert accelerator.driver.selected == [0]
