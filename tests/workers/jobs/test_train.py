"""Result of a training job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.workers.jobs import train
from assay.workers.jobs.session import Session

pytestmark = pytest.mark.trains


def answer(spec: dict[str, Any], recipe: dict[str, Any], folder: Path) -> dict[str, Any]:
    spec = spec | {"kind": "train", "recipe": recipe}
    request = {
        "spec": spec,
        "weights": None,
        "folder": folder,
        "checkpoint_seconds": 60,
        "job": "j",
        "cores": 1,
    }
    with torch.random.fork_rng():
        return train.run(request, Session(), lambda _: None)


@pytest.mark.parametrize(
    ("params", "forward", "backward"),
    [({}, 1, 1), ({"adversarial": "pgd_at", "attack_steps": 2}, 4, 3)],
    ids=["usual", "pgd_at"],
)
def test_passes_and_artifacts(
    spec: dict[str, Any], tmp_path: Path, params: dict[str, Any], forward: int, backward: int
) -> None:
    found = answer(spec, {"name": "small_vit", "params": {"epochs": 1} | params}, tmp_path)
    batch, held_out = spec["execution"]["batch_size"], 355
    examples = 1442 // batch * batch
    assert found["forward_passes"] == forward * examples + held_out
    assert found["backward_passes"] == backward * examples
    names = [artifact["name"] for artifact in found["extra"]["artifacts"]]
    assert names == ["weights.safetensors", "training_log.jsonl", "training_curves.svg"]
