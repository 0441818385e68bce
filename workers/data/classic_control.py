"""Scripted policies in gymnasium's classic control.

The mixtures have D4RL's names (Fu et al. 2020): a medium policy is about a third to a half as good as the
expert, "medium-replay" has skills from random to medium, "medium-expert" is half medium, half expert. The
experts are feedback laws: linear balancing, swinging up by adding energy. A policy of less than full skill
does a random action for a few steps on end.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Interval

from assay.workers.data.formats import parameters
from assay.workers.data.formats.control.environments import Environment, Episode, by_environment, make
from assay.workers.data.formats.control.trajectories import Choose, Trajectories, Trajectory, play
from assay.workers.data.formats.sampling import example_key

__all__ = ["classic_control"]

TASKS = ("control",)
PAPER = "Towers et al. 2024, Gymnasium; Fu et al. 2020, D4RL: Datasets for Deep Data-Driven RL"

EnvironmentName = Literal["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "Acrobot-v1"]
Quality = Literal["random", "medium", "medium-replay", "medium-expert", "expert"]

# Mean returns of 1000 episodes (200 of random actions in the last two); standard errors at most 9.2
# (Pendulum) and 1.2 (others). gymnasium 1.4.0.
ENVIRONMENTS: dict[str, Environment] = {
    one.name: one
    for one in (
        Environment("CartPole-v1", 4, 2, True, 500, 22.7, 500.0, 500.0, 100.0),
        Environment("Pendulum-v1", 3, 1, False, 200, -1221.8, -146.9, -146.9, 500.0),
        Environment("MountainCarContinuous-v0", 2, 1, False, 999, -33.3, 89.4, 89.4, 50.0),
        Environment("Acrobot-v1", 6, 3, True, 500, -500.0, -87.8, -87.8, 100.0),
    )
}
FACTS = {"package": "gymnasium", "by_parameter": {"environment": by_environment(ENVIRONMENTS)}}
# A medium policy: the expert's share of the time, and steps on end of a random action.
MEDIUM = {
    "CartPole-v1": (0.65, 2),
    "Pendulum-v1": (0.45, 6),
    "MountainCarContinuous-v0": (0.01, 6),
    "Acrobot-v1": (0.12, 6),
}


def classic_control(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    environment: EnvironmentName = "CartPole-v1",
    quality: Quality = "medium-expert",
    trajectories: Annotated[int, Interval(ge=2, le=100_000)] = 200,
    episodes: parameters.Episodes = 50,
) -> Trajectories:
    """Trajectories of scripted policies in gymnasium's classic control, made on the spot.

    Needs the package gymnasium. The trajectories depend on these parameters alone, and on the versions of
    gymnasium and numpy; the results have the hash of their content.

    Args:
        split: "train" are trajectories, "test" are episodes that a policy is judged in.
        environment: gymnasium's id.
        quality: of the policies that made the trajectories.
        trajectories: how many of them.
    """
    del root
    return Trajectories(
        name="classic_control",
        environment=ENVIRONMENTS[environment],
        recorded=_recorded(environment, quality, trajectories),
        ids=[f"{environment}/{quality}/{number:05d}" for number in range(trajectories)],
        episodes=None if split == "train" else episodes,
    )


@lru_cache(maxsize=4)
def _recorded(environment: str, quality: str, count: int) -> tuple[Trajectory, ...]:
    facts = ENVIRONMENTS[environment]
    made = make(facts, "classic_control")
    found = []
    for number in range(count):
        key = example_key("classic_control", f"{environment}/{quality}/{number:05d}")
        draws = np.random.default_rng(int.from_bytes(key[:8], "big"))
        skill = skill_of(environment, quality, number, draws)
        episode = Episode(facts, made, int(draws.integers(2**31)))
        found.append(play(episode, policy(facts, skill), draws))
    return tuple(found)


def skill_of(environment: str, quality: str, number: int, draws: np.random.Generator) -> float:
    """The skill of the policy that makes a trajectory, in [0, 1]."""
    medium, _ = MEDIUM[environment]
    skills = {
        "random": 0.0,
        "medium": medium,
        "medium-replay": medium * float(draws.random()),
        "medium-expert": 1.0 if number % 2 else medium,
        "expert": 1.0,
    }
    return skills[quality]


def policy(environment: Environment, skill: float) -> Choose:
    """A scripted policy that is random in a share 1 - skill of its steps, some on end."""
    expert = EXPERTS[environment.name]
    length = MEDIUM[environment.name][1] if skill else 1
    begins = (1 - skill) / (length * skill + 1 - skill)  # chance that random steps begin
    held: list[Any] = [0, None]

    def choose(episode: Episode, draws: np.random.Generator) -> Any:
        if held[0] == 0 and draws.random() < begins:
            held[:] = [length, _random_action(environment, draws)]
        if held[0]:
            held[0] -= 1
            return held[1]
        return expert(*(float(value) for value in episode.observation))

    return choose


def _random_action(environment: Environment, draws: np.random.Generator) -> Any:
    if environment.discrete:
        return int(draws.integers(environment.actions))
    return draws.uniform(-1.0, 1.0, environment.actions).astype(np.float32).astype(np.float64)


def _balance(place: float, speed: float, angle: float, turning: float) -> int:
    """CartPole: push to the side that the pole falls to, and the cart to the middle."""
    return int(0.2 * place + 0.5 * speed + 3.0 * angle + turning > 0)


def _swing_up(cosine: float, sine: float, turning: float) -> list[float]:
    """Pendulum: add or take energy until the top can be reached, then hold; torque / 2."""
    angle = math.atan2(sine, cosine)
    if cosine > 0.85:
        torque = -(12.0 * angle + 3.0 * turning)
    else:
        energy = turning**2 / 6.0 + 5.0 * (cosine - 1.0)  # 0 at rest at the top
        torque = -math.copysign(2.0, turning * energy) if turning else 2.0
    return [float(np.float32(min(1.0, max(-1.0, torque / 2.0))))]


def _drive(place: float, speed: float) -> list[float]:
    """MountainCarContinuous: push the way that the car moves."""
    del place
    return [1.0 if speed >= 0 else -1.0]


def _pump(*observation: float) -> int:
    """Acrobot: turn the second joint the way that it moves."""
    return 2 if observation[5] > 0 else 0


EXPERTS: dict[str, Any] = {
    "CartPole-v1": _balance,
    "Pendulum-v1": _swing_up,
    "MountainCarContinuous-v0": _drive,
    "Acrobot-v1": _pump,
}
