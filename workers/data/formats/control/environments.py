"""Environments of gymnasium: what a control task is played in, one seeded episode at a time.

An action is the number of a discrete action, or numbers in [-1, 1], scaled to the environment's bounds.
gymnasium is needed from the first episode.

S = numbers of an observation, A = discrete actions, or numbers of a continuous one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.workers.data.formats.dataset import CorruptData, MissingData

Observation = NDArray[np.float64]
EXTRA = "assay-robustness[control]"


@dataclass(frozen=True)
class Environment:
    """Facts of an environment that need no package."""

    name: str  # gymnasium's id
    observations: int  # S
    actions: int  # A
    discrete: bool  # an action is one of A; else A numbers in [-1, 1]
    max_steps: int  # of an episode
    random_return: float  # mean of random actions, normalised to 0
    expert_return: float  # mean of the expert, normalised to 1
    target_return: float  # default target of a return-conditioned policy
    return_scale: float  # divides returns before a network, above 0
    package: str | None = None  # needed by gymnasium, by the name to install; None: nothing more

    def normalized(self, episode_return: float) -> float:
        """The return where random actions have 0 and the expert has 1 (D4RL's score / 100)."""
        return (episode_return - self.random_return) / (self.expert_return - self.random_return)


def by_environment(environments: Mapping[str, Environment]) -> dict[str, dict[str, int]]:
    """Facts for the catalog, by an environment's name in a job's data."""
    return {
        name: {"classes": one.actions, "channels": one.observations, "max_steps": one.max_steps}
        for name, one in environments.items()
    }


def gymnasium(wanted_by: str) -> ModuleType:
    """The package."""
    try:
        import gymnasium
    except ImportError as error:
        raise MissingData(
            f"the data set {wanted_by!r} needs the Python package gymnasium, which this worker does not have:"
            f" pip install '{EXTRA}'"
        ) from error
    return gymnasium


def make(environment: Environment, wanted_by: str) -> Any:
    """A new environment of gymnasium."""
    package = gymnasium(wanted_by)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of later versions of the environment
            made = package.make(environment.name, disable_env_checker=True)
    except package.error.Error as error:
        needed = environment.package or "a package of gymnasium"
        raise MissingData(
            f"the data set {wanted_by!r} needs the environment {environment.name!r}, which needs {needed}:"
            f" {error}"
        ) from error
    _check(environment, made)
    return made


class Episode:
    """An episode from a seed in [0, 2^31), in its own environment; observations: float64 (S,)."""

    def __init__(self, environment: Environment, made: Any, seed: int) -> None:
        self._environment = environment
        self._made = made
        observation, _ = made.reset(seed=seed)
        self.observation: Observation = np.asarray(observation, dtype=np.float64)
        self.over = self.ended = False  # `ended` by itself; `over` after its most steps, too

    def step(self, action: int | Sequence[float] | NDArray[np.float64]) -> float:
        """Do an action, from 0 to A - 1, or (A,), cut to [-1, 1]; return its reward."""
        assert not self.over, "the episode is over"
        observation, reward, ended, cut, _ = self._made.step(self._scaled(action))
        self.observation = np.asarray(observation, dtype=np.float64)
        self.ended = bool(ended)
        self.over = bool(ended or cut)
        return float(reward)

    def _scaled(self, action: int | Sequence[float] | NDArray[np.float64]) -> Any:
        if self._environment.discrete:
            return int(action)  # type: ignore[arg-type]
        values = np.asarray(action, dtype=np.float64)
        if not np.isfinite(values).all():
            raise ValueError(f"an action must be finite: got {values.tolist()}")
        space = self._made.action_space
        low, high = (np.asarray(bound, dtype=np.float64) for bound in (space.low, space.high))
        return (low + (np.clip(values, -1.0, 1.0) + 1.0) / 2.0 * (high - low)).astype(space.dtype)


def _check(environment: Environment, made: Any) -> None:
    space, sizes = made.action_space, {"observations": math.prod(made.observation_space.shape)}
    sizes["actions"] = int(space.n) if hasattr(space, "n") else math.prod(space.shape)
    if hasattr(space, "n") != environment.discrete:
        raise CorruptData(f"the actions of {environment.name!r} are not what this version of Assay knows")
    for name, found in sizes.items():
        if found != getattr(environment, name):
            raise CorruptData(
                f"the environment {environment.name!r} has {found} {name}, {getattr(environment, name)} are"
                " expected: another version of gymnasium"
            )
