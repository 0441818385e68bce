"""Trajectories of scripted policies: seeded, as good as they say, and the references are measured."""

from __future__ import annotations

import numpy as np
import pytest

from assay.workers.data import classic_control as module
from assay.workers.data.classic_control import ENVIRONMENTS, MEDIUM, classic_control, policy
from assay.workers.data.formats.control.environments import Episode, make
from assay.workers.data.formats.control.trajectories import Trajectories, play

NAMES = sorted(ENVIRONMENTS)


def small(split: str = "train", **params: object) -> Trajectories:
    return classic_control(None, split, **{"trajectories": 6, "episodes": 3, **params})  # type: ignore[arg-type]


def mean_return(name: str, skill: float, episodes: int) -> tuple[float, float]:
    """Mean return of a scripted policy, and its standard error."""
    environment = ENVIRONMENTS[name]
    made = make(environment, "test")
    found = [
        play(Episode(environment, made, seed), policy(environment, skill), np.random.default_rng(seed))
        for seed in range(5000, 5000 + episodes)
    ]
    sums = np.array([one.rewards.sum() for one in found])
    return float(sums.mean()), float(sums.std(ddof=1) / np.sqrt(episodes))


@pytest.mark.costly
@pytest.mark.parametrize("name", NAMES)
def test_references_are_what_random_actions_and_the_expert_get(name: str) -> None:
    facts = ENVIRONMENTS[name]
    for skill, stated, episodes in ((0.0, facts.random_return, 6), (1.0, facts.expert_return, 25)):
        found, error = mean_return(name, skill, episodes)
        assert abs(found - stated) <= 4 * error + 0.2, (name, skill, found)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("split", ["train", "test"])
def test_description(name: str, split: str) -> None:
    data = small(split, environment=name)
    facts = ENVIRONMENTS[name]
    assert (data.name, data.task) == ("classic_control", "control")
    assert (data.classes, data.channels) == (facts.actions, facts.observations)
    assert len(set(data.ids)) == len(data) == {"train": 6, "test": 3}[split]
    assert len(data.class_names) == len(set(data.class_names)) == data.classes
    assert len(data.mean) == len(data.std) == data.channels
    assert min(data.std) > 0
    assert small("train", environment=name).mean == data.mean
    assert not set(small("train", environment=name).ids) & set(small("test", environment=name).ids)


@pytest.mark.parametrize("name", NAMES)
def test_trajectories_are_those_of_the_environment(name: str) -> None:
    """Played again from its seed, a trajectory has the same observations and rewards."""
    facts, data = ENVIRONMENTS[name], small(environment=name, quality="medium")
    for number, trajectory in enumerate(data.trajectories[:2]):
        key = module.example_key("classic_control", f"{name}/medium/{number:05d}")
        draws = np.random.default_rng(int.from_bytes(key[:8], "big"))
        assert module.skill_of(name, "medium", number, draws) == MEDIUM[name][0]
        episode = Episode(facts, make(facts, "test"), int(draws.integers(2**31)))
        for seen, action, reward in zip(
            trajectory.observations, trajectory.actions, trajectory.rewards, strict=True
        ):
            np.testing.assert_array_equal(episode.observation.astype(np.float32), seen)
            assert episode.step(action if facts.discrete else action.astype(np.float64)) == reward
        assert (episode.over, episode.ended) == (True, trajectory.ended)


def test_content_is_repeatable_and_the_hash_follows_it() -> None:
    digest = small().content_sha256()
    module._recorded.cache_clear()
    assert small().content_sha256() == digest
    others = [
        small("test"),
        small(quality="expert"),
        small(environment="Pendulum-v1"),
        small(trajectories=7),
    ]
    assert len({digest, *(other.content_sha256() for other in others)}) == 5
    changed = small()
    first = changed.trajectories[0]
    first.rewards[0] += 1
    try:
        assert changed.content_sha256() != digest
    finally:
        first.rewards[0] -= 1


@pytest.mark.costly
def test_qualities_are_in_order() -> None:
    order = ("random", "medium-replay", "medium", "medium-expert", "expert")
    means = [
        np.mean([one.rewards.sum() for one in small(quality=quality, trajectories=60).trajectories])
        for quality in order
    ]
    assert means == sorted(means)
    medium = ENVIRONMENTS["CartPole-v1"].normalized(float(means[2]))
    assert 0.2 < medium < 0.55
    assert {length for _, length in MEDIUM.values()} == {2, 6}
