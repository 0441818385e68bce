"""Episodes of a policy: many at once, each as if it were alone.

An episode is a loop in which rounding grows: the order of a sum decides the last bit of an action, and the
action the next observation. So the policy is computed in float64 at every dtype of the job, and continuous
actions are rounded to a grid of 2^-20, far coarser than that rounding: an episode's outcome follows from
its seed and id, at any batch size.

At each step the policy sees the steps since the beginning, its window's at most, with the returns-to-go that
are left of the target. What it was shown stays in its window, perturbed or not; the environment is never
perturbed.

B = running episodes, K = steps of the window so far, S = numbers of an observation, A = discrete actions, or
numbers of a continuous one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from assay.attacks.kernel import frozen
from assay.models.layers.policy_network import Context, PolicyModel
from assay.workers.data.formats.control.environments import Episode
from assay.workers.data.formats.control.trajectories import ControlSet
from assay.workers.evaluation.engine.shard import Shard

GRID = 2.0**20


class Seen(NamedTuple):
    """What a perturbation makes of the newest observations of some episodes."""

    observations: Tensor  # as the policy is to see them, (B, S)
    forward: int  # passes of the model for each
    backward: int


View = Callable[[PolicyModel, Tensor, Tensor, Sequence[str], int], Seen]
"""Perturbs: the policy, contexts (B, K, S + A + 3) with true newest observations, the policy's answers to
them (B, A), the episodes' ids, and the step."""


@dataclass
class Played:
    """One episode, step by step."""

    episode: Episode
    contexts: list[Tensor] = field(default_factory=list)  # (S + A + 3,) each; the last has no action yet
    rewards: list[float] = field(default_factory=list)  # of each step
    # of each step with a perturbation, how far the action was from the one at the true observation: 1 or 0
    # for discrete ones, else the mean distance of the numbers
    changes: list[float] = field(default_factory=list)
    finite: bool = True  # false where the policy gave a number that is not finite, which ended the episode
    forward: int = 0  # passes of the model
    backward: int = 0

    @property
    def running(self) -> bool:
        """Whether there is a next step."""
        return self.finite and not self.episode.over


@contextmanager
def exact(shard: Shard) -> Iterator[PolicyModel]:
    """The shard's policy in float64, without gradients of its weights."""
    policy = cast(PolicyModel, shard.classifier)
    if policy.mean.dtype != torch.float64:
        policy = copy.deepcopy(policy).double()
    with torch.no_grad(), frozen(policy):
        yield policy


def opening(shard: Shard, rows: Sequence[int], target: float | None = None) -> Tensor:
    """The contexts at the beginning of episodes, float64 (B, 1, S + A + 3)."""
    data = cast(ControlSet, shard.data)
    goal = data.environment.target_return if target is None else target
    episodes = [data.episode(shard.order[row], shard.seed) for row in rows]
    return torch.stack([_context(data, episode, goal, 0) for episode in episodes])[:, None]


def roll_out(
    shard: Shard, policy: PolicyModel, rows: Sequence[int], target: float, view: View | None
) -> list[Played]:
    """Plays episodes to their ends, all in step.

    `shard`: the episodes, and how to run them; `policy`: in float64; `target`: the return that is asked
    for; `view`: perturbs what the policy sees; None shows it the truth.
    """
    data = cast(ControlSet, shard.data)
    played = [Played(data.episode(shard.order[row], shard.seed)) for row in rows]
    step = 0
    while running := [place for place, one in enumerate(played) if one.running]:
        for place in running:
            one = played[place]
            one.contexts.append(_context(data, one.episode, target - sum(one.rewards), step))
            one.contexts = one.contexts[-shard.image_size :]
        ids = [shard.ids[rows[place]] for place in running]
        contexts = torch.stack([torch.stack(played[place].contexts) for place in running]).to(shard.device)
        answers, changes = _answers(policy, contexts, ids, step, view, [played[place] for place in running])
        for number, place in enumerate(running):
            _act(played[place], answers[number], data, len(policy.mean))
            if changes is not None:
                played[place].changes.append(float(changes[number]))
        step += 1
    return played


def _answers(
    policy: PolicyModel,
    contexts: Tensor,
    ids: Sequence[str],
    step: int,
    view: View | None,
    played: Sequence[Played],
) -> tuple[Tensor, Tensor | None]:
    """The policy's answers (B, A) on the CPU, and how far the perturbation changed the actions, (B,)."""
    answers = policy(contexts)[:, -1]
    forward, backward, changes = 1, 0, None
    if view is not None:
        seen = view(policy, contexts, answers, ids, step)
        size = seen.observations.shape[1]
        contexts[:, -1, :size] = seen.observations
        clean, answers = answers, policy(contexts)[:, -1]
        forward, backward = 2 + seen.forward, seen.backward
        changes = _changed(clean, answers, discrete=bool(policy.backbone.discrete))
        for one, shown in zip(played, seen.observations.cpu(), strict=True):
            one.contexts[-1][:size] = shown
    for one in played:
        one.forward += forward
        one.backward += backward
    return answers.cpu(), None if changes is None else changes.cpu()


def _changed(clean: Tensor, answers: Tensor, *, discrete: bool) -> Tensor:
    if discrete:
        return (clean.argmax(dim=1) != answers.argmax(dim=1)).double()
    return (clean - answers).abs().mean(dim=1)


def _act(one: Played, answer: Tensor, data: ControlSet, size: int) -> None:
    if not bool(torch.isfinite(answer).all()):
        one.finite = False
        return
    if data.environment.discrete:
        number = int(answer.argmax())
        done = functional.one_hot(torch.tensor(number), data.classes).double()
        one.rewards.append(one.episode.step(number))
    else:
        done = (answer * GRID).round() / GRID
        one.rewards.append(one.episode.step(done.numpy()))
    one.contexts[-1][size : size + data.classes] = done


def _context(data: ControlSet, episode: Episode, goal: float, step: int) -> Tensor:
    """The newest step of a window, without its action, float64 (S + A + 3,)."""
    parts = Context(
        torch.from_numpy(episode.observation).double(),
        torch.zeros(data.classes, dtype=torch.float64),
        *(torch.tensor([value], dtype=torch.float64) for value in (goal, step, 1)),
    )
    return torch.cat(parts)
