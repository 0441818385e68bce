"""How far a perturbation changes the actions of a policy."""

from __future__ import annotations

import pytest
import torch

from assay.workers.evaluation.engine.rollout import _changed


@pytest.mark.parametrize(
    ("discrete", "found"),
    # Three numbers that move by 3, 0 and 0: as a continuous action by 1 on the mean; as logits of a discrete
    # one they choose another action only in the second row.
    [(False, [1.0, 1.0, 0.0]), (True, [0.0, 1.0, 0.0])],
)
def test_a_discrete_action_changes_or_not_and_a_continuous_one_by_its_mean_distance(
    discrete: bool, found: list[float]
) -> None:
    before = torch.tensor([[5.0, 1.0, 1.0], [0.0, 1.0, 2.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    after = before + torch.tensor([[3.0, 0.0, 0.0], [3.0, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    assert _changed(before, after, discrete=discrete).tolist() == found
