"""Device classes are read from /dev and CUDA_VISIBLE_DEVICES, without torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assay.workers.devices import available_cores, device_classes, device_count
from assay.workers.settings import WorkerSettings


@pytest.fixture
def dev(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return tmp_path


def test_a_machine_without_gpu(dev: Path) -> None:
    (dev / "nvidiactl").touch()
    (dev / "nvidia-uvm").touch()
    assert device_classes(dev) == ("cpu",)


def test_a_gpu_also_serves_cpu(dev: Path) -> None:
    (dev / "nvidia0").touch()
    assert device_classes(dev) == ("cuda", "cpu")


@pytest.mark.parametrize(
    ("visible", "expected"),
    [("", ("cpu",)), ("-1", ("cpu",)), ("0", ("cuda", "cpu")), ("1,2", ("cuda", "cpu"))],
)
def test_hidden_gpus_do_not_count(
    dev: Path, monkeypatch: pytest.MonkeyPatch, visible: str, expected: tuple[str, ...]
) -> None:
    (dev / "nvidia0").touch()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert device_classes(dev) == expected


def test_a_worker_has_as_many_devices_as_it_was_told_to_use_and_can_see(
    dev: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert device_count(3, dev) == 3, "processes on the CPU"
    for number in range(4):
        (dev / f"nvidia{number}").touch()
    assert [device_count(asked, dev) for asked in (1, 4, 8)] == [1, 4, 4]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b")
    assert device_count(8, dev) == 2


def test_workers_share_the_cores_unless_told_otherwise(tmp_path: Path) -> None:
    assert WorkerSettings(state=tmp_path).cores_each(1) == available_cores() >= 1
    assert WorkerSettings(state=tmp_path).cores_each(10_000) == 1
    assert WorkerSettings(state=tmp_path, cores=6).cores_each(4) == 6


@pytest.mark.costly
def test_looking_does_not_import_torch() -> None:
    modules = "assay.workers.devices, assay.workers.supervision.supervisor, assay.workers.supervision.reaper"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
