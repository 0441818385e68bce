"""Return of a policy.

Fu et al. 2020, "D4RL", section 5: (return - random's) / (expert's - random's), D4RL's score / 100; the two
references are facts of the environment (`workers/data/formats/control/environments.py`).

    normalized_return = (return - random's) / (expert's - random's)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, cast

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.observations import ascend, gaussian, uniform
from assay.attacks.randomness import Randomness
from assay.models.layers.policy_network import PolicyModel
from assay.workers.data.formats.control.trajectories import ControlSet
from assay.workers.evaluation.engine.outcomes import WithoutFiles
from assay.workers.evaluation.engine.rollout import Played, Seen, exact, roll_out
from assay.workers.evaluation.engine.shard import Shard

__all__ = ["returns"]

TASKS = ("control",)
TABLE = "returns"
# At every dtype of the job.
FACTS = {"arithmetic": "float64"}
PAPER = (
    "Fu et al. 2020, D4RL; Zhang et al. 2020, Robust Deep Reinforcement Learning against Adversarial"
    " Perturbations on State Observations"
)
RULES = (
    (
        "params.perturbation != 'none' or params.epsilon == 0",
        "perturbation 'none' shows the true observations: leave epsilon out, or name a perturbation",
    ),
    (
        "params.perturbation == 'none' or params.epsilon > 0",
        "epsilon must be above 0: state the size of the perturbation, in standard deviations of the"
        " observations",
    ),
    (
        "params.perturbation == 'gradient' or params.steps == 10 and params.step_size == 0.25",
        "only the perturbation 'gradient' has steps and a step_size: leave them out",
    ),
)

PerturbationName = Literal["none", "uniform", "gaussian", "gradient"]


def returns(
    *,
    perturbation: PerturbationName = "none",
    epsilon: Annotated[float, Interval(ge=0, le=100)] = 0.0,
    steps: Annotated[int, Interval(ge=1, le=1000)] = 10,
    step_size: Annotated[float, Interval(gt=0, le=1)] = 0.25,
    target_return: Annotated[float, Interval(ge=-1e9, le=1e9)] | None = None,
) -> Returns:
    """Normalised return over seeded episodes, with true or perturbed observations.

    The policy is computed in float64 at every execution.dtype; execution.screening is refused.

    Args:
        perturbation: of what the policy sees at each step: "uniform" noise in [-epsilon, epsilon], "gaussian"
            noise of standard deviation epsilon, or "gradient", projected gradient ascent in the Linf ball of
            radius epsilon on the change of the action.
        epsilon: size of the perturbation, in standard deviations of each number of an observation over the
            training split.
        steps: gradient steps of "gradient".
        step_size: length of a gradient step, as a share of epsilon.
        target_return: the return that the policy is asked for at the beginning of an episode; null is the
            environment's.
    """
    return Returns(perturbation, epsilon, steps, step_size, target_return)


@dataclass(frozen=True)
class EpisodeReturns(WithoutFiles):
    """One row per episode, in the order of `ids`."""

    ids: tuple[str, ...]
    played: Sequence[Played]  # what happened in them
    # Their normalised returns; None where the policy gave a number that is not finite
    normalized: Sequence[float | None]

    @property
    def forward(self) -> Tensor:
        """Passes of the model, int64 (n,)."""
        return torch.tensor([one.forward for one in self.played], dtype=torch.int64)

    @property
    def backward(self) -> Tensor:
        """Passes with gradients, int64 (n,)."""
        return torch.tensor([one.backward for one in self.played], dtype=torch.int64)

    def columns(self) -> dict[str, list[Any]]:
        """The rows as JSON columns; `action_change` only with a perturbation."""
        columns: dict[str, list[Any]] = {
            "id": list(self.ids),
            "return": [sum(one.rewards) if one.finite else None for one in self.played],
            "normalized": list(self.normalized),
            "length": [len(one.rewards) for one in self.played],
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }
        if all(one.changes for one in self.played):
            columns["action_change"] = [
                sum(one.changes) / len(one.changes) if one.finite else None for one in self.played
            ]
        return columns

    def evidence(self) -> dict[str, Any]:
        """Nothing: episodes without a return are rows without one."""
        return {}


@dataclass(frozen=True)
class Returns:
    """Plays the episodes of the shard, a batch of them in step."""

    perturbation: PerturbationName  # of the observations
    epsilon: float  # its size, in standard deviations
    steps: int  # gradient steps
    step_size: float  # of a gradient step, as a share of epsilon
    target_return: float | None  # none for the environment's

    @property
    def passes_per_step(self) -> tuple[int, int]:
        """Forward and backward passes of the model at each step of an episode."""
        if self.perturbation == "none":
            return 1, 0
        return (2, 0) if self.perturbation != "gradient" else (self.steps + 3, self.steps)

    def measure(self, shard: Shard) -> EpisodeReturns:
        """One row per episode; its outcome depends on the job's seed and its id, not on the others."""
        environment = cast(ControlSet, shard.data).environment
        target = environment.target_return if self.target_return is None else self.target_return
        played: list[Played] = []
        rows = range(len(shard.ids))
        with exact(shard) as policy:
            for start in range(0, len(rows), shard.batch_size):
                some = rows[start : start + shard.batch_size]
                played += roll_out(shard, policy, some, target, self._view(shard.seed))
                shard.progress(len(played))
        normalized = [environment.normalized(sum(one.rewards)) if one.finite else None for one in played]
        return EpisodeReturns(shard.ids, played, normalized)

    def _view(self, seed: int) -> _View | None:
        return None if self.perturbation == "none" else _View(self, Randomness(seed, self.perturbation))


@dataclass(frozen=True)
class _View:
    stated: Returns
    draws: Randomness

    def __call__(
        self, policy: PolicyModel, contexts: Tensor, clean: Tensor, ids: Sequence[str], step: int
    ) -> Seen:
        """As `workers.evaluation.engine.rollout.View`."""
        size, epsilon = len(policy.mean), self.stated.epsilon
        true = contexts[:, -1, :size]
        noise = gaussian if self.stated.perturbation == "gaussian" else uniform
        delta = noise(self.draws, ids, step, size, epsilon).to(contexts)
        if self.stated.perturbation != "gradient":
            return Seen(true + delta * policy.std, 0, 0)

        def answers(perturbation: Tensor) -> Tensor:
            newest = torch.cat([true + perturbation * policy.std, contexts[:, -1, size:]], dim=1)
            shown = torch.cat([contexts[:, :-1], newest[:, None]], dim=1)
            found: Tensor = policy(shown)[:, -1]
            return found

        delta = ascend(
            answers,
            clean,
            delta,
            epsilon=epsilon,
            steps=self.stated.steps,
            step_size=self.stated.step_size * epsilon,
            discrete=bool(policy.backbone.discrete),
        )
        return Seen(true + delta * policy.std, self.stated.steps + 1, self.stated.steps)
