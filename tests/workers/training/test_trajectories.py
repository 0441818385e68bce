"""Windows of trajectories and the loss of their actions, against what is counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from assay.models.layers.policy_network import Context
from assay.workers.data.classic_control import ENVIRONMENTS
from assay.workers.data.formats.control.trajectories import Trajectories, Trajectory
from assay.workers.training.trajectories import TrajectoryBatches, action_loss, existing

LENGTHS = (4, 1, 6)


def data(name: str = "CartPole-v1") -> Trajectories:
    """Trajectory i, step t: every number of the observation is 10 i + t, the reward 100 i + t."""
    facts = ENVIRONMENTS[name]
    recorded = []
    for number, length in enumerate(LENGTHS):
        steps = np.arange(length)
        actions = (steps % facts.actions) if facts.discrete else (np.full((length, 1), 0.25 * number))
        recorded.append(
            Trajectory(
                np.repeat(10 * number + steps[:, None], facts.observations, axis=1).astype(np.float32),
                actions.astype(np.int64 if facts.discrete else np.float32),
                (100.0 * number + steps),
                True,
            )
        )
    ids = [str(number) for number in range(len(LENGTHS))]
    return Trajectories(name="hand", environment=facts, recorded=recorded, ids=ids, episodes=None)


def batches(name: str = "CartPole-v1", **more: int) -> TrajectoryBatches:
    given = {"length": 3, "seed": 0, "batch_size": 4} | more
    return TrajectoryBatches(data(name), device=torch.device("cpu"), **given)


def test_a_window_has_what_came_from_its_beginning_on() -> None:
    packed, truth = batches().windows(torch.tensor([1, 2, 4, 9]))
    parts = Context.of(packed, 4)
    assert parts.observations[..., 0].tolist() == [[1, 2, 3], [2, 3, 0], [10, 0, 0], [24, 25, 0]]
    assert parts.steps[..., 0].tolist() == [[1, 2, 3], [2, 3, 0], [0, 0, 0], [4, 5, 0]]
    assert existing(packed).int().tolist() == [[1, 1, 1], [1, 1, 0], [1, 0, 0], [1, 1, 0]]
    # What is left of 0 + 1 + 2 + 3, of 100, and of 200 + ... + 205.
    assert parts.returns[..., 0].tolist() == [[6, 5, 3], [5, 3, 0], [100, 0, 0], [409, 205, 0]]
    assert truth[0].tolist() == [1, 0, 1]
    assert parts.actions[0].argmax(-1).tolist() == [1, 0, 1]
    assert (packed[~existing(packed)] == 0).all()


def test_an_epoch_visits_every_step_once_as_a_beginning() -> None:
    made = batches(batch_size=1)
    assert made.steps_per_epoch == sum(LENGTHS)
    seen = [tuple(batch.images[0, 0, [0, -2]].tolist()) for batch in made.between(0, made.steps_per_epoch)]
    wanted = [(10.0 * number + step, float(step)) for number, n in enumerate(LENGTHS) for step in range(n)]
    assert sorted(seen) == sorted(wanted)


def test_batches_do_not_depend_on_where_a_training_resumed() -> None:
    whole = list(batches().between(0, 5))
    for first, again in zip(whole[3:], batches().between(3, 5), strict=True):
        assert torch.equal(first.images, again.images)
        assert torch.equal(first.truth, again.truth)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_the_loss_is_a_mean_over_the_steps_that_exist(name: str) -> None:
    packed, truth = batches(name).windows(torch.tensor([2, 4, 5]))
    outputs = torch.randn(3, 3, data(name).classes, generator=torch.Generator().manual_seed(0))
    present = existing(packed)
    each = []
    for row, step in present.nonzero().tolist():
        output = outputs[row, step].tolist()
        if truth.dim() == 2:
            total = math.log(sum(math.exp(value) for value in output))
            each.append(total - output[int(truth[row, step])])
        else:
            each.append((output[0] - truth[row, step].item()) ** 2)
    found = action_loss(outputs, packed, truth, present.sum())
    assert found.item() == pytest.approx(sum(each) / len(each), rel=1e-6)
    # Two processes have the two parts of the batch, and their losses add up.
    parts = [
        action_loss(outputs[rows], packed[rows], truth[rows], present.sum())
        for rows in (slice(0, 1), slice(1, 3))
    ]
    assert sum(parts).item() == pytest.approx(found.item(), rel=1e-6)


def test_what_a_padded_step_holds_is_not_looked_at() -> None:
    packed, truth = batches("Pendulum-v1").windows(torch.tensor([4]))
    outputs: Tensor = torch.zeros(1, 3, 1).requires_grad_()
    whole = existing(packed).sum()
    (gradient,) = torch.autograd.grad(action_loss(outputs, packed, truth, whole), outputs)
    assert gradient[0, 0] != 0
    assert (gradient[0, 1:] == 0).all()


def test_a_test_split_has_nothing_to_train_on() -> None:
    held_out = Trajectories(
        name="hand",
        environment=ENVIRONMENTS["CartPole-v1"],
        recorded=data().trajectories,
        ids=["0", "1", "2"],
        episodes=2,
    )
    with pytest.raises(ValueError, match="'hand' has no training examples"):
        TrajectoryBatches(held_out, length=3, seed=0, batch_size=4, device=torch.device("cpu"))
