"""Environments: how an episode begins, actions, versions."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from assay.workers.data import classic_control as module
from assay.workers.data.classic_control import ENVIRONMENTS, classic_control
from assay.workers.data.formats.control.environments import Environment, Episode, make
from assay.workers.data.formats.control.trajectories import Trajectories
from assay.workers.data.formats.dataset import CorruptData, MissingData


def small(split: str = "train", **params: object) -> Trajectories:
    return classic_control(None, split, **{"trajectories": 6, "episodes": 3, **params})  # type: ignore[arg-type]


def test_an_episode_begins_from_the_seed_and_its_id() -> None:
    data = small("test")
    first, again = data.episode(1, 5), data.episode(1, 5)
    assert (first.observation == again.observation).all()
    assert (data.episode(2, 5).observation != first.observation).any()
    assert (data.episode(1, 6).observation != first.observation).any()
    assert first.step(1) == again.step(1) == 1.0
    with pytest.raises(IndexError, match="3"):
        data.episode(3, 0)


def test_without_gymnasium_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    module._recorded.cache_clear()
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(MissingData, match=r"'classic_control' needs the Python package gymnasium.*control"):
        small(trajectories=9)


def test_actions_are_scaled_to_the_bounds_and_must_be_finite() -> None:
    facts = ENVIRONMENTS["Pendulum-v1"]
    episode = Episode(facts, make(facts, "test"), 0)
    assert episode._scaled([0.5]) == np.float32(1.0)
    assert episode._scaled([7.0]) == np.float32(2.0)
    with pytest.raises(ValueError, match="must be finite"):
        episode.step([float("nan")])


def test_another_version_of_an_environment_is_refused() -> None:
    wrong = Environment("CartPole-v1", 5, 2, True, 500, 0.0, 1.0, 1.0, 1.0)
    with pytest.raises(CorruptData, match="has 4 observations, 5 are expected"):
        make(wrong, "test")
    with pytest.raises(MissingData, match="needs the environment 'Nowhere-v9'"):
        make(Environment("Nowhere-v9", 5, 2, True, 500, 0.0, 1.0, 1.0, 1.0), "test")
