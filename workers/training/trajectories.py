"""Offline reinforcement learning as supervised learning: windows of trajectories, and their loss.

Chen et al., "Decision Transformer", NeurIPS 2021, algorithm 1 and its released code for gym. A window begins
at any step of any trajectory, all alike. Deviations: an epoch visits each step once as a beginning, the
released code draws with replacement; windows cut short by a trajectory's end are padded on the right, the
released ones on the left (no difference to the network, whose only positions are the episode's); the loss is
a mean over all existing steps, as there, for discrete actions the cross-entropy.

B = windows of this process's part of a batch, K = steps of a window, S = numbers of an observation, A =
discrete actions, or numbers of a continuous one, M = steps of all trajectories.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from assay.attacks.sending import sent
from assay.models.layers.policy_network import Context
from assay.workers.data.formats.control.trajectories import ControlSet
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.order import Order, OrderedBatches


class TrajectoryBatches(OrderedBatches):
    """Windows of a training split, from memory; an example is a window, M of them.

    A batch has packed contexts (B, K, S + A + 3) (`models.layers.policy_network`) and actions, int64 (B, K)
    or (B, K, A).
    """

    def __init__(
        self,
        data: ControlSet,
        *,
        length: int,
        seed: int,
        batch_size: int,
        device: torch.device,
        processes: Processes = ALONE,
    ) -> None:
        """Lays the trajectories end to end; the seed keys the order of windows of `length` K.

        `batch_size`: windows over all processes.
        """
        if not data.trajectories:
            raise ValueError(f"data set {data.name!r} has no training examples")
        self._length = length
        self._device = device
        self._discrete = data.environment.discrete
        recorded = data.trajectories
        counts = torch.tensor([len(one) for one in recorded])
        ends = counts.cumsum(0)
        self._ends = ends.repeat_interleave(counts)  # (M,)
        self._steps = torch.arange(int(ends[-1])) - (ends - counts).repeat_interleave(counts)  # (M,)
        self._observations = _joined([one.observations for one in recorded])  # (M, S)
        self._truth = _joined([one.actions for one in recorded])  # (M,) or (M, A)
        self._actions = self._truth
        if self._discrete:
            self._actions = functional.one_hot(self._truth, data.classes).float()  # (M, A)
        self._returns = _joined([np.cumsum(one.rewards[::-1])[::-1] for one in recorded]).float()  # (M,)
        super().__init__(Order(len(self._truth), seed=seed, batch_size=batch_size), processes)

    def between(self, start: int, stop: int) -> Generator[TrainingBatch, None, None]:
        """This process's batches of the steps start..stop-1."""
        for visit in self._order.between(start, stop):
            context, truth = self.windows(self._part.of(visit.indices))
            yield TrainingBatch(sent(context, self._device), sent(truth, self._device))

    def windows(self, beginnings: Tensor) -> tuple[Tensor, Tensor]:
        """Packed contexts and actions of windows that begin at these steps, int64 (B,)."""
        places = beginnings[:, None] + torch.arange(self._length)  # (B, K)
        present = places < self._ends[beginnings][:, None]
        places = torch.where(present, places, beginnings[:, None])
        missing = ~present[..., None]
        context = Context(
            self._observations[places],
            self._actions[places],
            self._returns[places][..., None],
            self._steps[places][..., None].float(),
            present[..., None].float(),
        )
        return context.packed().masked_fill(missing, 0.0), self._truth[places]


def action_loss(outputs: Tensor, contexts: Tensor, truth: Tensor, whole: Tensor) -> Tensor:
    """Loss of the predicted actions: this process's share of the mean over all existing steps.

    Outputs (B, K, A): logits of discrete actions, or actions; truth: int64 (B, K) or (B, K, A); contexts:
    packed, (B, K, S + A + 3). `whole`: existing steps of the whole batch, over all processes.
    """
    present = existing(contexts)  # (B, K)
    if truth.dim() == 2:
        each = functional.cross_entropy(outputs.flatten(0, 1), truth.flatten(), reduction="none")
        each = each.view(present.shape)
    else:
        each = (outputs - truth.to(outputs)).square().mean(dim=-1)
    return each.masked_fill(~present, 0.0).sum() / whole.clamp(min=1)


def existing(contexts: Tensor) -> Tensor:
    """Which steps of packed contexts exist, boolean (B, K)."""
    return contexts[..., -1] > 0.5


def _joined(parts: list[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts))
