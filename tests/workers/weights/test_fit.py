"""A policy is not played in an environment that only looks like its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from assay.workers.data.d4rl import ENVIRONMENTS
from assay.workers.data.formats.control.trajectories import Trajectories, Trajectory
from assay.workers.weights.fit import check_fit


def recorded(body: str) -> Any:
    facts = ENVIRONMENTS[body]
    shapes = ((2, facts.observations), (2, facts.actions))
    values = [np.zeros(shape, np.float32) for shape in shapes]
    one = Trajectory(values[0], values[1], np.zeros(2), ended=True)
    return Trajectories(name="d4rl", environment=facts, recorded=[one], ids=["0"], episodes=None)


def test_the_environment_of_the_job_and_of_the_training_must_be_the_same() -> None:
    cheetah, walker = recorded("halfcheetah"), recorded("walker2d")
    assert (cheetah.classes, cheetah.channels) == (walker.classes, walker.channels)
    check_fit(cheetah, cheetah, cheetah.class_names, "data")
    check_fit(cheetah, cheetah, None, "data")
    with pytest.raises(
        ValueError, match=r"data: .* act in 'HalfCheetah-v4', the job's data is in 'Walker2d-v4'"
    ):
        check_fit(cheetah, walker, None, "data")
    with pytest.raises(ValueError, match=r"'HalfCheetah-v4', its training is in 'Walker2d-v4'"):
        check_fit(cheetah, cheetah, walker.class_names, "data")
