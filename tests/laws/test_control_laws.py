"""Laws of the data sets of control that need no files: length, ids, numbers, hashes, episodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, get_args

import numpy as np
import pytest

from assay.workers.data.classic_control import ENVIRONMENTS, EnvironmentName, classic_control

NAMES = get_args(EnvironmentName)
SIZE: dict[str, Any] = {"trajectories": 3, "episodes": 4, "quality": "medium-expert"}
HASHES = """
import json, sys
from assay.workers.data.classic_control import classic_control
size = json.loads(sys.argv[1])
names = json.loads(sys.argv[2])
made = {name: classic_control(None, "train", environment=name, **size) for name in names}
print(json.dumps({name: data.content_sha256() for name, data in made.items()}))
"""


@pytest.mark.parametrize("name", NAMES)
def test_length_ids_and_numbers(name: EnvironmentName) -> None:
    train, test = (classic_control(None, split, environment=name, **SIZE) for split in ("train", "test"))  # type: ignore[arg-type]
    assert (len(train), len(test)) == (len(train.ids), len(test.ids)) == (3, 4)
    for data in (train, test):
        assert len(set(data.ids)) == len(data)
        assert (data.channels, data.classes) == (ENVIRONMENTS[name].observations, ENVIRONMENTS[name].actions)
        assert len(data.class_names) == data.classes
    assert (train.mean, train.std) == (test.mean, test.std)
    assert min(train.std) > 0
    assert len(test.trajectories) == 0
    for trajectory in train.trajectories:
        assert trajectory.observations.dtype == np.float32
        assert trajectory.actions.dtype == (np.int64 if ENVIRONMENTS[name].discrete else np.float32)
        assert trajectory.rewards.dtype == np.float64


@pytest.mark.parametrize("name", NAMES)
def test_an_episode_begins_from_its_id_and_the_seed(name: EnvironmentName) -> None:
    test = classic_control(None, "test", environment=name, **SIZE)
    longer = classic_control(None, "test", environment=name, **SIZE | {"episodes": 9})
    first = test.episode(1, 5).observation
    np.testing.assert_array_equal(first, longer.episode(1, 5).observation)
    for index, seed in ((1, 6), (2, 5)):
        assert not np.array_equal(first, test.episode(index, seed).observation)
    for outside in (-1, 4):
        with pytest.raises(IndexError):
            test.episode(outside, 0)


@pytest.mark.costly
def test_the_hash_is_the_same_in_another_process() -> None:
    command = [sys.executable, "-c", HASHES, json.dumps(SIZE), json.dumps(NAMES)]
    own = {name: classic_control(None, "train", environment=name, **SIZE).content_sha256() for name in NAMES}
    answer = subprocess.run(
        command, env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True
    )
    assert json.loads(answer.stdout) == own
    assert len(set(own.values())) == len(NAMES)
