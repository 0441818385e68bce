"""Every recipe of the catalog trains on the emulated device as a job, with the losses of the CPU."""

from __future__ import annotations

import dataclasses
import gc
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.jobs import train
from assay.workers.jobs.session import Session
from assay.workers.training.learner import Learner
from tests.laws.test_emulated_evaluations import DATA, MODELS, data
from tests.support.emulated_device.device import emulated_device
from tests.support.emulated_device.places import Place
from tests.workers.training import standins

__all__ = ["data"]

pytestmark = pytest.mark.trains
# Two steps or so of each.
FEW: dict[str, Any] = {"steps": 2, "warmup_steps": 1, "epochs": 1, "warmup_epochs": 0.0}
MORE: dict[str, dict[str, Any]] = {
    "segmenter": {"crop_size": 32, "short_side": 32},
    "lra_primal": {"task": "listops"},
    "lra_skyformer": {"task": "listops"},
    "wikitext_fairseq": {"total_tokens": 32},
}
BATCH = {"classification": 700, "segmentation": 400, "series": 300, "series_regression": 300}
SLOW = {
    "decision_transformer",
    "uea",
    "lra_skyformer",
    "wikitext_fairseq",
    "deit",
    "fan",
    "imagenet_100",
    "segmenter",
    "lra_primal",
    "wikitext",
}  # others of their kind are not
RECIPES = [
    pytest.param(one.name, one.tasks[0], id=one.name, marks=[pytest.mark.slow] * (one.name in SLOW))
    for one in load().list("recipe")
]


def spec(name: str, task: str, device: str) -> dict[str, Any]:
    offered = load().find("recipe", name).parameters["properties"]
    params = {key: value for key, value in FEW.items() if key in offered} | MORE.get(name, {})
    body = {
        "kind": "train",
        "model": MODELS[task],
        "data": DATA[task],
        "recipe": {"name": name, "params": params},
        "execution": {"device": device, "batch_size": BATCH.get(task, 4), "dtype": "float64"},
    }
    return validate(load(), body).spec


def losses(wanted: dict[str, Any], folder: Path) -> list[float]:
    """The numbers of the training log, and the loss of the evaluation after it."""
    folder.mkdir()
    request = {
        "spec": wanted,
        "weights": None,
        "folder": folder,
        "checkpoint_seconds": 60,
        "job": "j",
        "cores": 1,
    }
    with torch.random.fork_rng():
        train.run(request, Session(), lambda _: None)
    records = [json.loads(line) for line in (folder / "training_log.jsonl").read_text().splitlines()]
    return [
        value
        for record in records
        for key, value in sorted(record.items())
        if "loss" in key and value is not None
    ]


@pytest.mark.sampled
@pytest.mark.parametrize(("name", "task"), RECIPES)
def test_a_recipe(name: str, task: str, tmp_path: Path) -> None:
    here = losses(spec(name, task, "cpu"), tmp_path / "here")
    with emulated_device() as device:
        there = losses(spec(name, task, "cuda"), tmp_path / "there")
        gc.collect()
        assert device.bytes_held == 0, "something of the job is still held"
    assert len(there) == len(here) > 0
    assert all(math.isclose(*pair, rel_tol=1e-6) for pair in zip(there, here, strict=True)), (there, here)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_every_precision_has_the_weights_of_the_cpu_and_waits_once_a_step(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    """For the numbers of the step; the scaled loss of float16 and the clipped gradients wait for nothing."""
    steps: list[Counter[Place]] = []
    update = Learner.update

    def counted(*args: Any, **options: Any) -> Any:
        before = device.waits.copy()
        found = update(*args, **options)
        steps.append(device.waits - before)
        return found

    recipe = dataclasses.replace(standins.EVERYTHING, epochs=2, warmup_epochs=0.5)
    here = standins.run(tmp_path / "here", recipe=recipe, dtype=dtype)
    with emulated_device() as device, patch.object(Learner, "update", counted):
        there = standins.run(tmp_path / "there", recipe=recipe, dtype=dtype, device=device.device)
    assert there.weights_path.read_bytes() == here.weights_path.read_bytes()
    assert [waits.total() for waits in steps] == [1] * there.steps
