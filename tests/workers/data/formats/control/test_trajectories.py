"""Malformed trajectories are refused."""

from __future__ import annotations

import numpy as np
import pytest

from assay.workers.data.classic_control import ENVIRONMENTS
from assay.workers.data.formats.control.trajectories import Trajectories, Trajectory
from assay.workers.data.formats.dataset import CorruptData


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": np.zeros((2, 3), np.float32)}, "observations must be"),
        ({"actions": np.array([0, 2])}, "actions must be from 0 to 1"),
        ({"rewards": np.array([0.0, np.nan])}, "rewards must be finite"),
    ],
)
def test_malformed_trajectories_are_refused(change: dict[str, np.ndarray], message: str) -> None:
    good = {"observations": np.zeros((2, 4), np.float32), "actions": np.array([0, 1]), "rewards": np.ones(2)}
    bad = Trajectory(**{**good, **change}, ended=True)
    with pytest.raises(CorruptData, match=message):
        Trajectories(
            name="x", environment=ENVIRONMENTS["CartPole-v1"], recorded=[bad], ids=["a"], episodes=None
        )
