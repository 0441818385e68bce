"""Policies and environments: episodes longer than the model, and weights of another environment."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from assay.service.catalog.catalog import load
from assay.service.contract.errors import InvalidSpec
from assay.service.submission.validate import validate
from assay.workers.data import classic_control, d4rl

STEPS = {
    "CartPole-v1": 500,
    "Pendulum-v1": 200,
    "MountainCarContinuous-v0": 999,
    "Acrobot-v1": 500,
}


def job(environment: str, data: str = "classic_control", **params: Any) -> dict[str, Any]:
    return {
        "kind": "evaluate",
        "model": {"name": "decision_transformer", "params": params},
        "data": {"name": data, "params": {"environment": environment}},
        "evaluations": [{"name": "returns"}],
    }


@pytest.mark.parametrize("environment", sorted(STEPS))
def test_timesteps_must_reach_the_end_of_an_episode(environment: str) -> None:
    steps = STEPS[environment]
    validate(load(), job(environment, timesteps=steps))
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), job(environment, timesteps=steps - 1))
    (detail,) = caught.value.details
    assert detail.loc == ["model", "params"]
    assert "timesteps must not be less than the steps of an episode" in detail.message
    assert detail.given == {"data.max_steps": steps, "model.timesteps": steps - 1}


def trained_on(environment: str) -> Any:
    spec = validate(
        load(),
        {
            "kind": "train",
            "model": {"name": "decision_transformer"},
            "data": {"name": "classic_control", "params": {"environment": environment}},
            "recipe": {"name": "small_control"},
        },
    ).spec
    return SimpleNamespace(kind="train", state="succeeded", spec=spec, expired=False)


def test_weights_of_another_environment_are_refused_before_the_plan() -> None:
    body = job("Pendulum-v1")
    body["model"]["weights"] = {"job": "0" * 26}
    validate(load(), body, find_job=lambda _: trained_on("Pendulum-v1"))
    with pytest.raises(InvalidSpec) as caught:
        validate(load(), body, find_job=lambda _: trained_on("CartPole-v1"))
    messages = [detail.message for detail in caught.value.details]
    assert messages == [
        "'classic_control' (environment Pendulum-v1) has 1 classes, the model is made for the 2 of"
        " 'classic_control' (environment CartPole-v1)",
        "'classic_control' (environment Pendulum-v1) has 3 channels, the model is made for the 4 of"
        " 'classic_control' (environment CartPole-v1)",
    ]
    assert caught.value.details[0].loc == ["data", "name"]


@pytest.mark.parametrize("module", [classic_control, d4rl])
def test_the_catalog_has_the_facts_of_every_environment(module: Any) -> None:
    name = module.__name__.rpartition(".")[2]
    component = load().find("data", name)
    for environment, facts in module.ENVIRONMENTS.items():
        known = component.known({"environment": environment})
        assert known["classes"] == facts.actions
        assert known["channels"] == facts.observations
        assert known["max_steps"] == facts.max_steps
        assert "by_parameter" not in known
