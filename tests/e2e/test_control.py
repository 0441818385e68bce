"""Offline reinforcement learning through the real service: train a policy, attack it, compare."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.errors import InvalidSpec
from tests.e2e.jobs import finished, outcomes, rows
from tests.e2e.running import RunningService

pytestmark = pytest.mark.trains

EPISODES = 4
DATA: dict[str, Any] = {"name": "classic_control", "params": {"trajectories": 16, "episodes": EPISODES}}
SIZE = {"width": 16, "depth": 1, "heads": 2, "context": 4}
TRAINING = {
    "kind": "train",
    "model": {"name": "decision_transformer", "params": SIZE},
    "data": DATA,
    "recipe": {"name": "small_control", "params": {"steps": 60, "learning_rate": 5e-3, "warmup_steps": 5}},
    "execution": {"device": "cpu", "batch_size": 32},
}
GRADIENT = {"name": "returns", "params": {"perturbation": "gradient", "epsilon": 1.0, "steps": 2}}


def playing(model: Mapping[str, Any], evaluations: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": {"name": "decision_transformer", **model},
        "data": DATA,
        "evaluations": evaluations,
        "execution": {"device": "cpu"},
        **more,
    }


@pytest.mark.costly
def test_train_attack_and_compare(shared: RunningService, tmp_path: Path) -> None:
    client = shared.client
    training = client.submit(TRAINING).id
    untrained = client.submit(playing({"params": SIZE}, [{"name": "returns"}])).id
    finished(client, training)
    trained = client.submit(playing({"weights": {"job": training}}, [{"name": "returns"}, GRADIENT])).id
    finished(client, trained)
    (at_the_end,) = client.results(training).evaluations
    results = client.results(trained)
    clean, attacked = results.evaluations
    assert clean.metrics == at_the_end.metrics  # the same episodes, in another process
    score = clean.metrics["normalized_return"]
    assert score.n == EPISODES
    assert score.ci_low <= score.value <= score.ci_high
    assert clean.backward_passes == 0
    assert "action_change" not in clean.metrics
    assert 0 < attacked.metrics["action_change"].value <= 1
    assert results.provenance is not None
    assert "gymnasium" in results.provenance.packages  # the returns depend on its version

    tables = outcomes(client, trained, tmp_path)
    first, second = (rows(table) for table in tables.values())
    assert [row["id"] for row in first] == [f"episode-{number:04d}" for number in range(EPISODES)]
    assert score.value == pytest.approx(sum(float(row["normalized"]) for row in first) / EPISODES)
    assert sum(int(row["forward"]) for row in second) == attacked.forward_passes
    assert [int(row["backward"]) for row in second] == [2 * int(row["length"]) for row in second]
    lines = list(csv.DictReader(io.StringIO(client.results_csv(trained))))
    assert {"normalized_return", "return", "episode_length", "action_change"} == {
        line["metric"] for line in lines
    }

    finished(client, untrained)
    compared = client.compare([untrained, trained])["rows"]
    (row,) = [row for row in compared if row["metric"] == "normalized_return"]  # the attack has no partner
    before = client.results(untrained).evaluations[0].metrics["normalized_return"].value
    assert row["difference"] == pytest.approx(score.value - before)
    assert row["difference"] > 0
    assert row["test"] is not None  # paired by episode


def test_what_does_not_fit_is_refused(shared: RunningService) -> None:
    client = shared.client
    for given, nearest in (("CartPole-v2", "CartPole-v1"), ("Pendulum", "Pendulum-v1")):
        data = {"name": "classic_control", "params": {"environment": given}}
        with pytest.raises(InvalidSpec) as refused:
            client.submit(playing({"params": SIZE}, [{"name": "returns"}], data=data))
        (detail,) = refused.value.details
        assert detail.loc == ["data", "params", "environment"]
        assert (detail.given, detail.nearest) == (given, nearest)
        assert detail.allowed is not None
        assert nearest in detail.allowed
    for other in ("pgd", "clean", "series_noise"):
        with pytest.raises(InvalidSpec, match="'decision_transformer' is for control"):
            client.submit(playing({"params": SIZE}, [{"name": other}]))
    data = {"name": "d4rl", "params": {"folder": "d4rl_v2"}}
    with pytest.raises(InvalidSpec, match=r"data.params.folder: there is no folder 'd4rl_v2'"):
        client.submit(playing({"params": SIZE}, [{"name": "returns"}], data=data))
    acrobot = {"name": "classic_control", "params": {"environment": "Acrobot-v1", "trajectories": 2}}
    for body, message in (
        (playing({"params": SIZE}, [{"name": "returns", "data": acrobot}]), "has 3 classes, the model is"),
        (playing({"params": SIZE | {"timesteps": 100}}, [{"name": "returns"}]), "timesteps must not be less"),
    ):
        with pytest.raises(InvalidSpec, match=message):
            client.submit(body)
