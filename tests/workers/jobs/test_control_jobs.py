"""Offline reinforcement learning as jobs: trained, resumed weights measured in shards, refused by name."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.metrics.registry import TABLES
from assay.service.metrics.table import Context, joined
from assay.service.submission.validate import validate
from assay.workers.data import classic_control as classic
from assay.workers.data.formats.dataset import MissingData
from assay.workers.jobs import evaluate, plan, train
from assay.workers.jobs.final_evaluation import final_evaluation
from assay.workers.jobs.session import Session

pytestmark = pytest.mark.trains

MODEL = {"width": 16, "depth": 1, "heads": 2, "context": 4}
EXECUTION = {"device": "cpu", "batch_size": 8}


def data(name: str = "CartPole-v1", **more: Any) -> dict[str, Any]:
    return {
        "name": "classic_control",
        "params": {"environment": name, "trajectories": 8, "episodes": 3, **more},
    }


def completed(body: Mapping[str, Any]) -> dict[str, Any]:
    return validate(load(), {"execution": EXECUTION, **body}).spec


def training(name: str = "CartPole-v1", model: Mapping[str, Any] = MODEL, **recipe: Any) -> dict[str, Any]:
    params = {"steps": 20, "warmup_steps": 2} | recipe
    return completed(
        {
            "kind": "train",
            "model": {"name": "decision_transformer", "params": dict(model)},
            "data": data(name, quality="random"),
            "recipe": {"name": "small_control", "params": params},
        }
    )


def trained(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
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


def evaluation(*items: Mapping[str, Any], model: Mapping[str, Any] = MODEL) -> dict[str, Any]:
    return completed(
        {
            "kind": "evaluate",
            "model": {"name": "decision_transformer", "params": dict(model), "weights": {"job": "j"}},
            "data": data(quality="random"),
            "evaluations": [{"name": "returns", "params": dict(item)} for item in items],
        }
    )


def measured(spec: dict[str, Any], weights: Path, shard_seconds: float) -> list[dict[str, Any]]:
    session, request = Session(), {"spec": spec, "weights": str(weights), "folder": str(weights.parent)}
    made = plan.run(request | {"shard_seconds": shard_seconds}, session, lambda _: None)["plan"]
    return [
        evaluate.run(request | {"plan": made} | shard, session, lambda _: None) | {"shard": shard}
        for shard in made["shards"]
    ]


def test_a_trained_policy_is_measured_and_its_shards_are_joined(tmp_path: Path) -> None:
    spec = training()
    found = trained(spec, tmp_path)
    assert final_evaluation(spec)["name"] == "returns"
    assert len(found["columns"]["id"]) == 3
    perturbed = {"perturbation": "gradient", "epsilon": 0.5, "steps": 1}
    outcomes = measured(evaluation({}, perturbed), tmp_path / "weights.safetensors", 1e9)
    clean, attacked = (outcome["columns"] for outcome in outcomes)
    assert sorted(zip(clean["id"], clean["return"], strict=True)) == sorted(
        zip(found["columns"]["id"], found["columns"]["return"], strict=True)
    )
    assert attacked["backward"] == attacked["length"]
    table = TABLES["returns"]
    summary = table.summarise(joined(table.columns, [attacked]), Context())
    assert {"normalized_return", "action_change"} <= set(summary.metrics)
    # Many small shards have the same rows.
    apart = measured(evaluation({}) | {"execution": spec["execution"] | {"batch_size": 1}}, *small(tmp_path))
    assert len(apart) == 3
    rows = joined(table.columns, [outcome["columns"] for outcome in apart])
    assert rows == joined(table.columns, [clean])


def small(folder: Path) -> tuple[Path, float]:
    return folder / "weights.safetensors", 1e-9


def test_a_continuous_policy_learns(tmp_path: Path) -> None:
    found = trained(training("Pendulum-v1", steps=30), tmp_path)
    log = (tmp_path / "training_log.jsonl").read_text()
    assert '"accuracy": null' in log
    assert all(math.isfinite(value) for value in found["columns"]["return"])


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidSpec, match="timesteps must not be less than the steps of an episode"):
        training(model=MODEL | {"timesteps": 400})
    short = training()
    short["model"]["params"]["timesteps"] = 400  # as of a data set whose facts are not known at submission
    with pytest.raises(ValueError, match="timesteps"):
        trained(short, tmp_path)
    with pytest.raises(InvalidSpec, match="'clean' is for classification"):
        completed(
            {
                "kind": "evaluate",
                "model": {"name": "decision_transformer", "params": MODEL},
                "data": data(),
                "evaluations": [{"name": "clean"}],
            }
        )
    for params, message in (
        ({"epsilon": 0.1}, "leave epsilon out"),
        ({"perturbation": "uniform"}, "epsilon must be above 0"),
    ):
        with pytest.raises(InvalidSpec, match=message):
            evaluation(params)
    classic._recorded.cache_clear()
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingData, match="gymnasium"):
        trained(training(), tmp_path)
