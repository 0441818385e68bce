"""A training that was interrupted ends with the same bits as one that was not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from assay.workers.training import batches
from assay.workers.training.checkpoint import Checkpoints
from assay.workers.training.result import WEIGHTS_NAME, Trained
from tests.support.interrupted import interrupt

pytestmark = pytest.mark.trains

ROOT = Path(__file__).parents[3]


def outcome(trained: Trained) -> dict[str, object]:
    """Everything that must be equal: hashes of both weights files, and the log without its times."""
    assert trained.average_path is not None
    log = [json.loads(line) for line in trained.log_path.read_text().splitlines()]
    for record in log:
        del record["seconds"]
    return {
        "weights": hashlib.sha256(trained.weights_path.read_bytes()).hexdigest(),
        "average": hashlib.sha256(trained.average_path.read_bytes()).hexdigest(),
        "log": log,
        "curves": trained.curves_path.read_text(),
        "final_loss": trained.final_loss,
    }


@pytest.fixture(scope="module")
def undisturbed(standins: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    result = outcome(standins.run(tmp_path_factory.mktemp("undisturbed")))
    torch.set_num_threads(threads)
    return result


@pytest.mark.parametrize("step", [1, 7, 10, 29], ids=lambda step: f"step {step}")
def test_interrupted_anywhere(
    standins: ModuleType, tmp_path: Path, undisturbed: dict[str, object], step: int
) -> None:
    interrupt(standins, tmp_path, step)
    # The caller's own start must not matter: other weights, another state of the generators.
    torch.manual_seed(step)
    assert outcome(standins.run(tmp_path, classifier=standins.classifier(99))) == undisturbed


@pytest.mark.costly
@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({"schedule": "one_cycle"}, torch.float32),
        ({"schedule": "polynomial", "optimiser": "sgd"}, torch.float32),
        ({}, torch.bfloat16),
        ({}, torch.float16),
    ],
    ids=["one cycle", "sgd", "bfloat16", "float16"],
)
def test_interrupted_with_other_schedules_optimisers_and_arithmetic(
    standins: ModuleType, tmp_path: Path, changes: dict[str, Any], dtype: torch.dtype
) -> None:
    recipe = dataclasses.replace(standins.EVERYTHING, **changes)
    undisturbed = outcome(standins.run(tmp_path / "whole", recipe=recipe, dtype=dtype))
    for step in (4, 17):
        interrupt(standins, tmp_path / "cut", step, recipe=recipe, dtype=dtype)
    assert outcome(standins.run(tmp_path / "cut", recipe=recipe, dtype=dtype)) == undisturbed


def test_interrupted_after_the_scale_of_the_loss_has_fallen(standins: ModuleType, tmp_path: Path) -> None:
    """With the first scale again, its next steps would overflow and be left out."""

    def run(folder: str, step: int | None = None) -> dict[str, Any]:
        torch.manual_seed(0)
        given = {"classifier": standins.Overflowing(), "dtype": torch.float16}
        if step is not None:
            interrupt(standins, tmp_path / folder, step, **given)
            return Checkpoints(tmp_path / folder).newest().state["learner"]["scaler"]  # type: ignore[union-attr]
        return outcome(standins.run(tmp_path / folder, **given))

    assert run("cut", 7)["scale"] < 2.0**16
    assert run("cut") == run("whole")


def test_interrupted_many_times(standins: ModuleType, tmp_path: Path, undisturbed: dict[str, object]) -> None:
    for step in (3, 4, 11, 18, 25):
        interrupt(standins, tmp_path, step)
    assert outcome(standins.run(tmp_path)) == undisturbed


def test_interrupted_with_images_loaded_ahead(
    standins: ModuleType, tmp_path: Path, undisturbed: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "CACHE_BYTES", 0)
    interrupt(standins, tmp_path, 12)
    assert outcome(standins.run(tmp_path)) == undisturbed


@pytest.mark.costly
def test_killed_in_the_middle_of_an_epoch(
    standins: ModuleType, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    command = [sys.executable, str(Path(__file__).with_name("standins.py")), str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line).get("step") == 13:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / WEIGHTS_NAME).exists()

    progress: list[Mapping[str, object]] = []
    trained = standins.run(tmp_path, report=progress.append)
    done = progress[0]["done"]
    assert isinstance(done, int)
    assert 13 <= done < trained.steps
    assert outcome(trained) == undisturbed


def test_a_torn_checkpoint_falls_back_to_the_one_before(
    standins: ModuleType, tmp_path: Path, undisturbed: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    interrupt(standins, tmp_path, 13)
    newest = max(tmp_path.glob("step-*.pt"))
    newest.write_bytes(newest.read_bytes()[:-1])
    progress: list[Mapping[str, object]] = []
    with caplog.at_level(logging.WARNING):
        trained = standins.run(tmp_path, report=progress.append)
    assert progress[0]["done"] == 12
    assert "damaged" in caplog.text
    assert outcome(trained) == undisturbed


def test_a_finished_training_is_only_written_again(
    standins: ModuleType, tmp_path: Path, undisturbed: dict[str, object]
) -> None:
    standins.run(tmp_path)
    (tmp_path / WEIGHTS_NAME).unlink()
    data = standins.Stripes()
    model = standins.classifier(5)
    steps_seen = []
    model.register_forward_hook(lambda *_: steps_seen.append(1))
    assert outcome(standins.run(tmp_path, classifier=model, data=data)) == undisturbed
    assert steps_seen == []
