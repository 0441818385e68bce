"""Memory of the emulated device runs out: passes are halved, and the outcomes are those of enough memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay.workers import accelerator
from assay.workers.evaluation.engine.probe import probe_shard
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.failures import describe
from assay.workers.jobs.session import Session
from tests.laws.test_emulated_evaluations import near, spec
from tests.support import networks
from tests.support.emulated_device.device import EmulatedDevice, emulated_device
from tests.support.shards import Given, shard


class Job:
    """An evaluation job on the emulated device, planned with all the memory that it wants."""

    def __init__(self, wanted: dict[str, Any], folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.session = Session()
        self.request = {"spec": wanted, "weights": None, "folder": str(folder)}
        asked = self.request | {"shard_seconds": 1e9}
        self.plan = plan.run(asked, self.session, lambda _: None)["plan"]

    def answer(self) -> dict[str, Any]:
        (shard,) = self.plan["shards"]
        return evaluate.run(self.request | {"plan": self.plan} | shard, self.session, lambda _: None)


def wanted(name: str, params: dict[str, Any], task: str = "classification") -> dict[str, Any]:
    """A job of 16 examples in one batch."""
    found = spec("top1" if task == "classification" else name, task, "cuda", batch_size=16)
    item = {"name": name, "params": params, "data": None}
    return found | {"limit": 16, "evaluations": [{**found["evaluations"][0], **item}]}


def halved(device: EmulatedDevice, job: Job, share: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answers with enough memory, and with a share of what that took."""
    device.forget_counts()
    whole = job.answer()
    device.squeeze(share)
    return whole, job.answer()


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("top1", {"ece_bins": 15, "rms_bin_size": 100, "rms_bins": "released"}),
        ("pgd", {"epsilon": 0.05, "steps": 3}),
    ],
)
def test_an_evaluation_halves_its_passes(name: str, params: dict[str, Any], tmp_path: Path) -> None:
    with emulated_device() as device:
        job = Job(wanted(name, params), tmp_path)
        whole, parts = halved(device, job, 0.7)
        emptied = accelerator.driver.emptied
    assert "reduced_batch" not in whole["extra"]["evidence"]
    reduced = parts["extra"]["evidence"]["reduced_batch"]
    assert reduced["asked"] == 16
    assert reduced["used"] < 16
    assert emptied >= 1
    for column, values in whole["columns"].items():
        assert near(parts["columns"][column], values), column


def test_memory_for_no_single_example_fails_the_job_by_its_name(tmp_path: Path) -> None:
    with emulated_device() as device:
        job = Job(wanted("pgd", {"epsilon": 0.05, "steps": 3}), tmp_path)
        device.squeeze(0.0)
        with pytest.raises(torch.OutOfMemoryError) as caught:
            job.answer()
    assert describe(caught.value)["error_type"] == "out_of_memory"


@pytest.mark.costly
def test_efficiency_reports_the_peak_of_the_device_and_halves_its_batch(tmp_path: Path) -> None:
    with emulated_device() as device:
        params = {"batch_size": 8, "repeats": 3, "warmup": 1}
        job = Job(wanted("efficiency", params), tmp_path)
        whole, parts = halved(device, job, 0.7)
    assert whole["extra"]["evidence"]["test_bytes"] > 0
    assert parts["extra"]["evidence"]["reduced_batch"] == {"asked": 8, "used": 4}


def test_the_probe_asks_fewer_images_where_memory_is_short() -> None:
    images = networks.digits()[0][:16]
    data = Given([str(row) for row in range(16)], images=lambda rows: images[list(rows)])
    asked = []

    class Random(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = networks.network("convolutional")

        def forward(self, pixels: torch.Tensor) -> torch.Tensor:
            asked.append(len(pixels))
            logits: torch.Tensor = self.network(pixels + torch.rand_like(pixels))
            return logits

    with emulated_device() as device:
        shown = shard(Random().to(device.device), data, device=device.device)
        device.forget_counts()
        assert probe_shard(shown)["random_outputs"] == 16
        device.squeeze(0.6)
        asked.clear()
        assert probe_shard(shown)["random_outputs"] in (4, 8)
        assert asked[0] == 16
