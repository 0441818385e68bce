"""Trajectories for offline reinforcement learning, and the episodes that a policy is judged in.

An example of the training split is a recorded trajectory, of the test split an episode, which begins from the
job's seed and its own id.

n = examples, T = steps of a trajectory, S = numbers of an observation, A = discrete actions, or numbers of a
continuous one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from assay.models.layers.policy_network import PolicyModel, PolicyNetwork
from assay.workers.data.formats.control.environments import Environment, Episode, make
from assay.workers.data.formats.dataset import CorruptData, ExampleSet, checked_indices

MIN_STD = 1e-6  # Constant numbers are divided by this
SEED_BITS = 31


@dataclass(frozen=True)
class Trajectory:
    """An episode from its beginning to its end."""

    observations: NDArray[np.float32]  # before each action, (T, S)
    actions: NDArray[Any]  # discrete, int64 (T,), or float32 (T, A) in [-1, 1]
    rewards: NDArray[np.float64]  # after each action, (T,)
    ended: bool  # by itself; else it was cut

    def __len__(self) -> int:
        return len(self.rewards)


class ControlSet(ExampleSet, Protocol):
    """Trajectories to learn from, or episodes; `channels` is S and `classes` A."""

    @property
    def environment(self) -> Environment:
        """What it is played in."""

    @property
    def mean(self) -> tuple[float, ...]:
        """Mean of each number of an observation over the training split, (S,)."""

    @property
    def std(self) -> tuple[float, ...]:
        """Standard deviation, above 0; an epsilon of perturbed observations is in this unit."""

    @property
    def trajectories(self) -> Sequence[Trajectory]:
        """Those of the training split, (n,); of the test split none."""

    def episode(self, index: int, seed: int) -> Episode:
        """A new episode of the test split; the same index and seed begin alike."""


class Trajectories:
    """A `ControlSet` in memory."""

    task = "control"
    size = None

    def __init__(
        self,
        *,
        name: str,
        environment: Environment,
        recorded: Sequence[Trajectory],
        ids: Sequence[str],
        episodes: int | None,
    ) -> None:
        """Describe a split."""
        if not recorded:
            raise CorruptData(f"the data set {name!r} has no trajectory")
        for identifier, trajectory in zip(ids, recorded, strict=True):
            _check(f"{name!r}, trajectory {identifier!r}", trajectory, environment)
        self.name = name
        self.environment = environment
        self.classes, self.channels = environment.actions, environment.observations
        self.class_names = tuple(f"{environment.name} action {number}" for number in range(self.classes))
        seen = np.concatenate([trajectory.observations for trajectory in recorded]).astype(np.float64)
        self.mean = tuple(seen.mean(axis=0).tolist())
        self.std = tuple(np.maximum(seen.std(axis=0), MIN_STD).tolist())
        self.trajectories: Sequence[Trajectory] = recorded if episodes is None else ()
        self.ids: Sequence[str] = (
            list(ids) if episodes is None else [f"episode-{number:04d}" for number in range(episodes)]
        )
        self._recorded = dict(zip(ids, recorded, strict=True))
        if episodes is not None:
            make(environment, name)  # tells a missing package before a training

    def __len__(self) -> int:
        return len(self.ids)

    def episode(self, index: int, seed: int) -> Episode:
        """A new episode of the test split."""
        (place,) = checked_indices([index], len(self))
        return Episode(self.environment, make(self.environment, self.name), self.seed_of(place, seed))

    def seed_of(self, index: int, seed: int) -> int:
        """An episode's seed, in [0, 2^31): of the job's seed and its id alone."""
        key = f"{self.environment.name}/{seed}/{self.ids[index]}".encode()
        return int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "big") >> (64 - SEED_BITS)

    def content_sha256(self) -> str:
        """Hash of environment, ids and trajectories of the training split."""
        digest = hashlib.sha256(f"{self.name} {self.environment}\n{' '.join(self.ids)}\n".encode())
        for identifier, trajectory in self._recorded.items():
            digest.update(f"{identifier} {len(trajectory)} {trajectory.ended}\n".encode())
            for values in (trajectory.observations, trajectory.actions, trajectory.rewards):
                digest.update(np.ascontiguousarray(values).tobytes())
        return digest.hexdigest()


def policy_for(backbone: nn.Module, data: ControlSet) -> PolicyModel:
    """A network as policy for a data set."""
    environment, timesteps = data.environment, cast(PolicyNetwork, backbone).timesteps
    if environment.max_steps > timesteps:
        raise ValueError(
            f"model.params.timesteps is {timesteps}, an episode of {environment.name!r} has up to"
            f" {environment.max_steps} steps"
        )
    return PolicyModel(backbone, data.mean, data.std, environment.return_scale)


Choose = Callable[[Episode, np.random.Generator], Any]
"""A scripted policy: the action, in the form that `Episode.step` takes."""


def play(episode: Episode, choose: Choose, draws: np.random.Generator) -> Trajectory:
    """A scripted policy's trajectory of an episode."""
    observations, actions, rewards = [], [], []
    while not episode.over:
        action = choose(episode, draws)
        observations.append(episode.observation)
        actions.append(action)
        rewards.append(episode.step(action))
    discrete = np.ndim(actions[0]) == 0
    return Trajectory(
        np.asarray(observations, dtype=np.float32),
        np.asarray(actions, dtype=np.int64 if discrete else np.float32),
        np.asarray(rewards, dtype=np.float64),
        episode.ended,
    )


def _check(where: str, trajectory: Trajectory, environment: Environment) -> None:
    steps = len(trajectory)
    shapes = {
        "observations": (steps, environment.observations),
        "actions": (steps,) if environment.discrete else (steps, environment.actions),
    }
    for name, wanted in shapes.items():
        given = getattr(trajectory, name).shape
        if given != wanted or steps == 0:
            raise CorruptData(f"{where}: {name} must be {wanted}, at least one step: got {given}")
    if steps > environment.max_steps:
        raise CorruptData(f"{where}: {steps} steps, an episode has at most {environment.max_steps}")
    for name in ("observations", "actions", "rewards"):
        if not np.isfinite(getattr(trajectory, name)).all():
            raise CorruptData(f"{where}: {name} must be finite")
    actions = trajectory.actions
    low, high = (0, environment.actions - 1) if environment.discrete else (-1.0, 1.0)
    if actions.min() < low or actions.max() > high:
        raise CorruptData(
            f"{where}: actions must be from {low} to {high}: got {actions.min()} to {actions.max()}"
        )
