"""Result of a training job."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors import safe_open

from assay.workers.jobs import train, trainer
from assay.workers.jobs.session import Session
from assay.workers.jobs.trainer import judged_rows
from assay.workers.training.losses import Trainee, TrainingLoss
from assay.workers.training.recipe import Recipe
from assay.workers.weights.training_record import parse_trained_on

pytestmark = pytest.mark.trains


def answer(
    spec: dict[str, Any], recipe: dict[str, Any], folder: Path, report: Callable[[Any], None] = lambda _: None
) -> dict[str, Any]:
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
        return train.run(request, Session(), report)


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


def selected(
    spec: dict[str, Any], folder: Path, recipe: dict[str, Any], batch_size: int = 256
) -> dict[str, Any]:
    spec = spec | {"execution": spec["execution"] | {"batch_size": batch_size}}
    return answer(spec, recipe, folder)["extra"]["plan"]["evaluations"][0]


def test_a_validation_share_is_logged_and_selects(spec: dict[str, Any], tmp_path: Path) -> None:
    params = {"epochs": 2, "validation": 0.2, "selection": "validation"}
    facts = selected(spec, tmp_path, {"name": "small_vit", "params": params})
    assert facts.keys().isdisjoint({"selected_on_test", "published_batch"})
    log = [json.loads(line) for line in (tmp_path / "training_log.jsonl").read_text().splitlines()]
    # A fifth of 1442 digits, rounded class by class, is not trained on: four whole batches are left.
    assert [record["step"] for record in log] == [4, 8]
    counts = {round(record["judged_accuracy"] * 288, 6) % 1 for record in log}
    assert counts == {0.0}, "judged on 288 images"
    assert ">validation<" in (tmp_path / "training_curves.svg").read_text()


def test_passes_that_judge_the_model_are_told(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainer, "REPORT_SECONDS", 0.0)
    told: list[dict[str, Any]] = []
    params = {"epochs": 1, "validation": 0.2, "selection": "validation"}
    answer(spec, {"name": "small_vit", "params": params}, tmp_path, told.append)
    messages = [report["message"] for report in told if report["type"] == "progress"]
    assert any(message.endswith("; 288 of 288 examples judged") for message in messages)
    assert messages[-1].startswith("epoch 1/1 loss ")
    assert messages[-1].endswith("; 355 of 355 examples judged")
    assert told[-1]["done"] == told[-1]["total"]


def test_a_selection_on_the_test_set_is_recorded_with_the_weights(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    params = {"epochs": 1, "selection": "released_test"}
    facts = selected(spec, tmp_path, {"name": "small_vit", "params": params})
    assert facts["selected_on_test"] == 1
    with safe_open(tmp_path / "weights.safetensors", framework="pt") as file:
        record = parse_trained_on(file.metadata())
    assert record is not None
    assert record.selected_on_test


def test_short_memory_is_a_fact(
    spec: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss = TrainingLoss.of

    def limited(self: TrainingLoss, trainee: Trainee, images: torch.Tensor, *given: Any) -> Any:
        if len(images) > 100:
            raise torch.OutOfMemoryError("planted")
        return loss(self, trainee, images, *given)

    monkeypatch.setattr(TrainingLoss, "of", limited)
    facts = selected(spec, tmp_path, {"name": "small_vit", "params": {"epochs": 1}})
    assert facts["reduced_in_training"] == {"asked": 256, "used": 64, "batch_norm": False}
    assert "unsaved_checkpoints" not in facts


@pytest.mark.costly
def test_another_batch_than_the_published_one_is_a_fact(spec: dict[str, Any], tmp_path: Path) -> None:
    params = {"epochs": 1, "warmup_epochs": 0}
    smaller = selected(
        spec, tmp_path / "small", {"name": "deit", "params": params | {"total_batch": None}}, 512
    )
    assert (smaller["published_batch"], smaller["step_batch"]) == (1024, 512)
    assert (smaller["peak"], smaller["published_peak"]) == (5e-4, 1e-3)
    assert "asked_batch" not in smaller
    larger = selected(
        spec, tmp_path / "large", {"name": "deit", "params": params | {"total_batch": 4096}}, 512
    )
    assert (larger["asked_batch"], larger["published_batch"]) == (4096, 1024)
    assert 1024 < larger["step_batch"] < 4096, "the training set"
    whole = selected(spec, tmp_path / "whole", {"name": "deit", "params": params}, 512)
    assert whole.keys().isdisjoint({"published_batch", "peak"})


def test_label_maps_are_not_judged(spec: dict[str, Any]) -> None:
    data: Any = SimpleNamespace(task="segmentation", name="ade20k", ids=["a"])
    recipe = Recipe(epochs=1, learning_rate=0.1, validation=0.1)
    with pytest.raises(
        ValueError, match="for classification, sequence, series; 'ade20k' is for segmentation"
    ):
        judged_rows(data, data, recipe, 0)
    assert judged_rows(data, data, Recipe(epochs=1, learning_rate=0.1), 0) == (None, None, ())


def test_cut_sequences_are_a_fact_of_a_training(spec: dict[str, Any], tmp_path: Path) -> None:
    sizes = {"width": 8, "heads": 2, "depth": 1, "hidden": 8}
    changes = {
        "model": {"name": "sequence_transformer", "params": {**sizes, "length": 5}, "weights": None},
        "data": {"name": "recall", "params": {"letters": 4, "train": 60, "evaluation": 20}},
    }
    recipe = {"name": "small_sequence", "params": {"epochs": 1, "warmup_epochs": 0}}
    facts = selected(spec | changes, tmp_path / "whole", recipe)
    assert not {"cut", "cut_in_training"} & {*facts}
    changes["model"]["params"]["length"] = 2  # type: ignore[index]
    cut = selected(spec | changes, tmp_path / "cut", recipe)
    assert cut["cut"] == cut["n"] > 0
    assert cut["cut_in_training"] == cut["training"] > 0
