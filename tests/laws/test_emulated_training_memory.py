"""A training whose batches do not fit into the emulated device's memory halves its passes and goes on.

Its weights are, bit for bit, those of the training on the CPU that was asked for these passes.
"""

from __future__ import annotations

import dataclasses
import gc
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers import accelerator
from assay.workers.jobs import train
from assay.workers.jobs.failures import describe
from assay.workers.jobs.session import Session
from assay.workers.jobs.training_warnings import of_training
from assay.workers.training.recipe import AdversarialTraining, Augmentation
from assay.workers.training.result import Trained
from tests.laws.test_emulated_evaluations import DATA, MODELS, data
from tests.support.emulated_device.device import EmulatedDevice, emulated_device
from tests.support.texts import write_wikitext
from tests.workers.training import standins

__all__ = ["data"]

T = TypeVar("T")

pytestmark = pytest.mark.trains

FULL, HALF = 8, 4
WHOLE = dataclasses.replace(standins.EVERYTHING, epochs=2, warmup_epochs=0.5, total_batch=FULL)
PLAIN = dataclasses.replace(WHOLE, augmentation=Augmentation(shift=0.1, flip=True))
TRADES = dataclasses.replace(PLAIN, adversarial=AdversarialTraining("trades", 0.1, 2, 0.04))
TRAININGS: dict[str, dict[str, Any]] = {
    "statistics, mixup, an average": {"recipe": WHOLE},
    "double precision": {"recipe": PLAIN, "dtype": torch.float64},
    "adversarial": {"recipe": TRADES},
}


def wide() -> nn.Module:
    """Its activations take far more memory than its weights; it has statistics, and draws random numbers."""
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.GELU(),
            nn.Dropout(0.2),
            nn.Conv2d(64, 4, 1),
            nn.Flatten(),
            nn.Linear(4 * standins.SIZE**2, standins.CLASSES),
        )


def leave_room_for_half(whole: Callable[[], object], half: Callable[[], T], device: EmulatedDevice) -> T:
    """Gives the device too little memory for passes of whole batches, and enough for those of half ones.

    Returns:
        What the half ones came to.
    """
    device.memory.limit = None
    peaks, found = [], None
    for run in (whole, half):
        gc.collect()  # the last training is a circle of references
        device.forget_counts()
        found = run()
        peaks.append(device.peak_bytes)
    most, least = peaks
    assert least < most
    device.memory.limit = least + (most - least) // 16
    gc.collect()
    return found


def squeezed(folder: Path, device: EmulatedDevice, **given: Any) -> Trained:
    """A training in whole batches, with room for half ones."""

    def run(place: str, size: int) -> Trained:
        return standins.run(folder / place, classifier=wide(), batch_size=size, device=device.device, **given)

    leave_room_for_half(lambda: run("whole", FULL), lambda: run("half", HALF), device)
    return run("squeezed", FULL)


def numbers(trained: Trained) -> list[dict[str, Any]]:
    """The records of the log, without what a clock says."""
    records = [json.loads(line) for line in trained.log_path.read_text().splitlines()]
    return [{key: value for key, value in one.items() if "second" not in key} for one in records]


@pytest.mark.costly
@pytest.mark.parametrize("kind", TRAININGS)
def test_a_training_halves_its_passes(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = TRAININGS[kind]
    with emulated_device() as device:
        halved = squeezed(tmp_path, device, **given)
        emptied = accelerator.driver.emptied
    asked = standins.run(tmp_path / "asked", classifier=wide(), batch_size=HALF, **given)
    assert halved.reduced == {"asked": FULL, "used": HALF, "batch_norm": True}
    assert (halved.batch_size, halved.at_once, halved.steps) == (FULL, HALF, asked.steps)
    assert emptied == 1
    assert f"out of memory at step 1: again with {halved.reduced}" in caplog.messages
    assert any("CUDA out of memory (emulated)" in message for message in caplog.messages)
    assert halved.weights_path.read_bytes() == asked.weights_path.read_bytes()
    assert halved.average_path is not None
    assert asked.average_path is not None
    assert halved.average_path.read_bytes() == asked.average_path.read_bytes()
    assert numbers(halved) == numbers(asked)
    assert asked.reduced is None


@pytest.mark.costly
def test_memory_that_is_short_later_and_a_resumed_training(tmp_path: Path) -> None:
    """One that was halved at its fourth step and killed at its seventh has the bits of an undisturbed one."""

    def run(device: EmulatedDevice, folder: str, stop: int | None = None) -> Trained:
        def report(message: Mapping[str, object]) -> None:
            if message["type"] == "checkpoint" and message["step"] == 3:
                device.memory.limit = limit
            if message["type"] == "checkpoint" and message["step"] == stop:
                raise KeyboardInterrupt

        return standins.run(
            tmp_path / folder,
            classifier=wide(),
            recipe=WHOLE,
            batch_size=FULL,
            device=device.device,
            report=report,
            checkpoint_seconds=0.0,
        )

    with emulated_device() as device:
        squeezed(tmp_path, device, recipe=WHOLE)
        limit, device.memory.limit = device.memory.limit, None
        whole = run(device, "undisturbed")
        device.memory.limit = None
        with pytest.raises(KeyboardInterrupt):
            run(device, "cut", stop=7)
        device.memory.limit = None
        resumed = run(device, "cut")
        early = squeezed(tmp_path / "early", device, recipe=WHOLE)
    assert whole.reduced == resumed.reduced == early.reduced
    assert resumed.weights_path.read_bytes() == whole.weights_path.read_bytes()
    assert early.weights_path.read_bytes() != whole.weights_path.read_bytes()


def test_memory_for_no_pass_at_all_is_named(tmp_path: Path) -> None:
    with emulated_device() as device:

        def report(message: Mapping[str, object]) -> None:
            if message["type"] == "checkpoint":
                device.memory.limit = device.bytes_held + 24 * 1024

        given = {"recipe": WHOLE, "checkpoint_seconds": 0.0, "report": report}
        with pytest.raises(torch.OutOfMemoryError, match="not even 2 of 8 examples") as caught:
            standins.run(tmp_path, classifier=wide(), device=device.device, **given)
    assert describe(caught.value)["error_type"] == "out_of_memory"
    assert not list(tmp_path.glob("*.safetensors"))


STEP = 32
FEW = {"steps": 2, "warmup_steps": 1, "epochs": 1, "warmup_epochs": 0.0, "total_batch": STEP}


def job(task: str, recipe: str, params: dict[str, Any], device: str, batch_size: int) -> dict[str, Any]:
    """The spec of a training in steps of `STEP` examples."""
    offered = load().find("recipe", recipe).parameters["properties"]
    body = {
        "kind": "train",
        "model": MODELS[task],
        "data": DATA[task],
        "recipe": {"name": recipe, "params": {key: FEW[key] for key in FEW if key in offered} | params},
        "execution": {"device": device, "batch_size": batch_size, "dtype": "float32"},
    }
    return validate(load(), body).spec


def plan_of(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What a training job answers of its course."""
    folder.mkdir()
    request: Any = {"spec": spec, "weights": None, "folder": folder, "checkpoint_seconds": 60, "job": "j"}
    with torch.random.fork_rng():
        answer = train.run(request | {"cores": 1}, Session(), lambda _: None)
    return dict(answer["extra"]["plan"])


SLOW = pytest.mark.slow
MAPS = {"crop_size": 32, "short_side": 32}
JOBS = [
    pytest.param("language", "wikitext", {}, id="language"),
    pytest.param("series", "uea", {}, id="series", marks=SLOW),
    pytest.param("segmentation", "segmenter", MAPS, id="segmentation", marks=SLOW),
    pytest.param("control", "decision_transformer", {}, id="control", marks=SLOW),
]
# Where gradients of resized maps have a deterministic algorithm on CUDA, it is not the CPU's kernel.
OTHER_KERNELS = {"segmentation"}


@pytest.mark.costly
@pytest.mark.parametrize(("task", "recipe", "params"), JOBS)
def test_a_training_job_halves_and_warns(
    task: str, recipe: str, params: dict[str, Any], tmp_path: Path
) -> None:
    def run(folder: str, device: str, size: int) -> dict[str, Any]:
        return plan_of(job(task, recipe, params, device, size), tmp_path / folder)

    write_wikitext(tmp_path, "wt", train="a b c d e " * 60, test="a b c d e " * 3)
    with emulated_device() as device:
        there = leave_room_for_half(
            lambda: run("whole", "cuda", STEP), lambda: run("half", "cuda", STEP // 2), device
        )
        halved = run("halved", "cuda", STEP)
    (facts,) = halved["evaluations"]
    assert facts["reduced_in_training"] == {"asked": STEP, "used": STEP // 2, "batch_norm": False}
    assert "reduced_batch" in [warning.code for warning in of_training(facts)]
    assert "reduced_in_training" not in there["evaluations"][0]
    assert halved["weights_sha256"] == there["weights_sha256"]
    if task not in OTHER_KERNELS:
        with sdpa_kernel(SDPBackend.MATH):  # as on the emulated device
            here = run("here", "cpu", STEP // 2)
        assert halved["weights_sha256"] == here["weights_sha256"]
