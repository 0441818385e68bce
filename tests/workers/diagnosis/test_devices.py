"""What `assay doctor` says of the devices, by an evaluator that tries them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.workers.diagnosis import devices
from assay.workers.settings import WorkerSettings
from tests.support.workers import FAKE

FAKE_COMMAND = f"{sys.executable} -S {FAKE}"


def test_a_gpu_box_whose_torch_has_no_cuda_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "device_classes", lambda: ("cuda", "cpu"))
    settings = WorkerSettings(
        state=tmp_path, evaluator_command=f"env FAKE_EVALUATOR=broken=cuda {FAKE_COMMAND}", devices=2
    )
    found = {one.name: one.status for one in devices.devices(settings)}
    assert found == {
        "CUDA": "fail",
        "NCCL": "fail",
        "deterministic mode": "ok",
        "device self-test cuda:0": "fail",
        "device self-test cpu": "ok",
    }
