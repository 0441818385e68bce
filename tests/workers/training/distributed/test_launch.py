"""Training in several processes of one machine: its results, and the death of a process."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.workers.jobs import train
from assay.workers.jobs.failures import FailedElsewhere, describe
from assay.workers.jobs.session import Session
from assay.workers.training.distributed import launch
from assay.workers.training.distributed.launch import DEATH, train_on_devices
from assay.workers.training.distributed.rank import join
from assay.workers.training.result import trained
from assay.workers.training.training_log import EpochRecord


def request(spec: dict[str, Any], folder: Path, epochs: int) -> dict[str, Any]:
    recipe = {"name": "small_vit", "params": {"epochs": epochs, "warmup_epochs": 0}}
    execution = spec["execution"] | {"devices": 2, "batch_size": 64}
    return {
        "kind": "train",
        "job": "j",
        "spec": spec | {"kind": "train", "recipe": recipe, "execution": execution},
        "weights": None,
        "folder": str(folder),
        "checkpoint_seconds": 60,
        "cores": 2,
    }


@pytest.mark.slow
def test_two_processes_train_and_this_one_evaluates(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary" / "assay-training-999999999-left").mkdir(parents=True)
    reports: list[Mapping[str, Any]] = []
    found = train.run(request(spec, tmp_path, epochs=2), Session(), reports.append)
    steps = 2 * (1442 // 64)
    assert found["n"] == 355
    assert found["forward_passes"] == steps * 64 + 355
    assert found["extra"]["plan"]["batch_size"] == 64
    assert found["extra"]["plan"]["weights_sha256"] in (tmp_path / "weights.safetensors").read_text("latin-1")
    names = [artifact["name"] for artifact in found["extra"]["artifacts"]]
    assert names == ["weights.safetensors", "training_log.jsonl", "training_curves.svg"]
    progress = [report for report in reports if report["type"] == "progress"]
    assert (progress[0]["done"], progress[0]["total"]) == (0, steps)
    assert {"type": "checkpoint", "step": steps} in reports
    assert list((tmp_path / "temporary").iterdir()) == [], "nothing is left, also of trainings before"


@pytest.mark.slow
def test_the_death_of_one_process_ends_all_and_is_the_reason(spec: dict[str, Any], tmp_path: Path) -> None:
    def kill_the_second(message: Mapping[str, Any]) -> None:
        mine = ranks()
        if message["type"] == "progress":
            for pid in mine:
                # A process that this one has forked has its command line and environment.
                if environment(pid).get("RANK") == "1" and parent(pid) not in mine:
                    os.kill(pid, signal.SIGKILL)

    with pytest.raises(FailedElsewhere, match="the process of device 1 was killed by SIGKILL") as caught:
        train_on_devices(request(spec, tmp_path, epochs=10_000), kill_the_second)
    assert describe(caught.value)["retry"] is True
    assert ranks() == set()
    assert not (tmp_path / "weights.safetensors").exists()


@pytest.mark.slow
def test_a_process_that_hangs_ends_the_training(spec: dict[str, Any], tmp_path: Path) -> None:
    def stop_the_second(message: Mapping[str, Any]) -> None:
        mine = ranks()
        if message["type"] == "progress" and message["done"] > 0:
            for pid in mine:
                if environment(pid).get("RANK") == "1" and parent(pid) not in mine:
                    os.kill(pid, signal.SIGSTOP)

    with pytest.raises(FailedElsewhere, match="has not answered the others for 20 seconds") as caught:
        train_on_devices(request(spec, tmp_path, epochs=10_000), stop_the_second, timeout=20.0)
    assert describe(caught.value)["retry"] is True
    assert ranks() == set()
    assert not (tmp_path / "weights.safetensors").exists()


def test_the_group_of_gpus_knows_its_device_and_both_have_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL itself was never run here: there is no GPU."""
    calls: list[tuple[Any, ...]] = []
    timeout = timedelta(minutes=3)
    monkeypatch.setattr(torch.cuda, "set_device", lambda local: calls.append(("set_device", local)))
    monkeypatch.setattr(
        torch.distributed, "init_process_group", lambda *given, **named: calls.append((*given, named))
    )
    join(2, 4, 1, on_gpu=True, timeout=timeout)
    join(2, 4, 1, on_gpu=False, timeout=timeout)
    common = {"rank": 2, "world_size": 4, "timeout": timeout}
    own = {"device_id": torch.device("cuda", 1)}
    assert calls == [("set_device", 1), ("nccl", common | own), ("gloo", common)]


@pytest.mark.slow
def test_what_a_process_says_is_the_reason(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `rank` does it, in place of torchrun: the batch is too small for two."""
    program = (
        "import sys; from datetime import timedelta; from pathlib import Path;"
        " from assay.workers.training.distributed.rank import _tell;"
        " _tell(Path(sys.argv[1]), ValueError('batches are too small'), timedelta(1)); sys.exit(1)"
    )
    monkeypatch.setattr(
        launch, "_command", lambda _, folder, timeout: [sys.executable, "-c", program, str(folder)]
    )
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(FailedElsewhere, match="batches are too small") as caught:
        train_on_devices(request(spec, tmp_path, epochs=1), lambda _: None)
    assert describe(caught.value) == {
        "error_type": "invalid_value",
        "message": "batches are too small",
        "retry": False,
    }


def test_what_was_trained_comes_back_from_the_first_process(tmp_path: Path) -> None:
    record = EpochRecord(1, 5, 0.5, 0.9, 0.1, 2.0)
    reduced: Any = {"asked": 64, "used": 16, "batch_norm": True}
    outcome = trained(
        tmp_path, [record], batch_size=64, averages=True, at_once=16, reduced=reduced, unsaved=2
    )
    assert launch._from_json(json.loads(json.dumps(launch.to_json(outcome)))) == outcome


def test_a_hung_process_is_the_reason_though_it_was_killed_for_it(tmp_path: Path) -> None:
    told(tmp_path, 0, 20, "it hangs", retry=True, error_type=launch.HUNG)
    (tmp_path / DEATH).write_text(json.dumps({"killed": "device 1 was killed by SIGKILL"}))
    assert launch._reason(tmp_path) == {"error_type": "process_hung", "message": "it hangs", "retry": True}


def told(folder: Path, rank: int, time: int, message: str, *, retry: bool, error_type: str = "e") -> None:
    failure = {"error_type": error_type, "message": message, "retry": retry}
    (folder / f"failure-{rank}.json").write_text(json.dumps({"time": time, "failure": failure}))


def test_the_first_to_fail_says_why_unless_one_was_killed(tmp_path: Path) -> None:
    assert "without a word" in launch._reason(tmp_path)["message"]
    told(tmp_path, 0, 20, "the other is gone", retry=True)
    told(tmp_path, 1, 30, "me too", retry=True)
    assert launch._reason(tmp_path)["message"] == "the other is gone"
    (tmp_path / DEATH).write_text(json.dumps({"killed": ""}))
    assert launch._reason(tmp_path)["message"] == "the other is gone"
    (tmp_path / DEATH).write_text(json.dumps({"killed": "device 2 was killed"}))
    assert launch._reason(tmp_path)["message"] == "device 2 was killed"
    told(tmp_path, 3, 10, "a damaged image", retry=False)
    assert launch._reason(tmp_path)["message"] == "a damaged image"


def test_more_devices_than_the_worker_has_are_refused_at_once(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "resolve_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match=r"execution\.devices is 2, but this worker has 1.*ASSAY_DEVICES"):
        train_on_devices(request(spec, tmp_path, epochs=1), lambda _: None)


def ranks() -> set[int]:
    """The training processes that this process has started and that are alive; not those of other tests."""
    mine = f"assay-training-{os.getpid()}-".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes()
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if (
            entry.name.isdigit()
            and b"assay.workers.training.distributed.rank" in command
            and mine in command
            and not dead
            and b"distributed.torchrun" not in command
        ):
            found.add(int(entry.name))
    return found


def parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:  # it has ended since it was listed
        return 0


def environment(pid: int) -> dict[str, str]:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    except OSError:  # it has ended since it was listed
        return {}
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)
