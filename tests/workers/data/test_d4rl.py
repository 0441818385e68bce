"""D4RL's and Minari's files, written here in their layouts, become trajectories."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from assay.workers.data.d4rl import ENVIRONMENTS, d4rl
from assay.workers.data.formats.dataset import CorruptData, MissingData
from assay.workers.data.minari import minari

DRAWS = np.random.default_rng(0)
# Ends: by itself, by time, and an incomplete rest.
LENGTHS, REST = (4, 3), 2


def transitions(**changes: Any) -> dict[str, Any]:
    steps = sum(LENGTHS) + REST
    terminals, timeouts = np.zeros(steps, bool), np.zeros(steps, bool)
    terminals[LENGTHS[0] - 1] = timeouts[sum(LENGTHS) - 1] = True
    arrays = {
        "observations": DRAWS.normal(size=(steps, 11)).astype(np.float32),
        "actions": DRAWS.uniform(-1, 1, (steps, 3)).astype(np.float32),
        "rewards": np.arange(steps, dtype=np.float32),
        "terminals": terminals,
        "timeouts": timeouts,
    }
    return arrays | changes


def write(root: Path, arrays: dict[str, Any], suffix: str) -> None:
    (root / "d4rl").mkdir(exist_ok=True)
    path = root / "d4rl" / f"hopper_medium-v2{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
        return
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values


@pytest.mark.parametrize("suffix", [".hdf5", ".npz"])
def test_a_file_is_cut_where_trajectories_end(tmp_path: Path, suffix: str) -> None:
    arrays = transitions()
    write(tmp_path, arrays, suffix)
    data = d4rl(tmp_path, "train")
    assert list(data.ids) == ["hopper_medium-v2/00000", "hopper_medium-v2/00001"]
    assert [(len(one), one.ended) for one in data.trajectories] == [(4, True), (3, False)]
    np.testing.assert_array_equal(data.trajectories[1].observations, arrays["observations"][4:7])
    np.testing.assert_array_equal(data.trajectories[1].rewards, [4.0, 5.0, 6.0])
    np.testing.assert_allclose(data.mean, arrays["observations"][:7].mean(0), rtol=1e-5)
    assert (data.classes, data.channels) == (3, 11)


def test_the_content_decides_the_hash(tmp_path: Path) -> None:
    arrays = transitions()
    write(tmp_path, arrays, ".npz")
    digest = d4rl(tmp_path, "train").content_sha256()
    arrays["rewards"] = arrays["rewards"] + 1
    write(tmp_path, arrays, ".npz")
    assert d4rl(tmp_path, "train").content_sha256() != digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timeouts": np.zeros(3, bool)}, "different lengths"),
        ({"terminals": np.zeros(9, bool), "timeouts": np.zeros(9, bool)}, "no trajectory ends"),
        ({"actions": np.full((9, 3), 1.5, np.float32)}, "actions must be from -1.0 to 1.0"),
        ({"observations": np.zeros((9, 4), np.float32)}, "observations must be"),
    ],
)
def test_other_arrays_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path, transitions(**changes), ".npz")
    with pytest.raises(CorruptData, match=message):
        d4rl(tmp_path, "train")


def test_missing_files_arrays_and_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "d4rl").mkdir()
    with pytest.raises(MissingData, match=r"walker2d_medium_expert-v2\.hdf5"):
        d4rl(tmp_path, "train", environment="walker2d", quality="medium-expert")
    arrays = transitions()
    del arrays["rewards"]
    write(tmp_path, arrays, ".hdf5")
    with pytest.raises(CorruptData, match="no array 'rewards'"):
        d4rl(tmp_path, "train")
    write(tmp_path, transitions(), ".hdf5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingData, match=r"needs the Python package h5py.*control\]'"):
        d4rl(tmp_path, "train")


def test_a_pickle_in_an_npz_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, transitions(rewards=np.array([{}] * 9, dtype=object)), ".npz")
    with pytest.raises(CorruptData, match="allow_pickle"):
        d4rl(tmp_path, "train")


@pytest.mark.skipif(find_spec("mujoco") is not None, reason="mujoco is installed")
def test_episodes_without_mujoco_are_refused_by_name(tmp_path: Path) -> None:
    write(tmp_path, transitions(), ".npz")
    with pytest.raises(MissingData, match="'d4rl' needs the environment 'Hopper-v4', which needs mujoco"):
        d4rl(tmp_path, "test")


def test_scores_are_those_of_d4rl() -> None:
    # Published: a return of 3234.3 is 100, one of -20.27 is 0.
    assert ENVIRONMENTS["hopper"].normalized(3234.3) == 1
    assert ENVIRONMENTS["halfcheetah"].normalized(-280.178953) == 0
    assert ENVIRONMENTS["walker2d"].normalized(4592.3 / 2) == pytest.approx(0.49982, abs=1e-5)


def test_episodes_of_minari(tmp_path: Path) -> None:
    path = tmp_path / "minari" / "mujoco" / "hopper" / "medium-v0" / "data" / "main_data.hdf5"
    path.parent.mkdir(parents=True)
    with h5py.File(path, "w") as file:
        for number, steps in ((10, 2), (2, 5)):
            group = file.create_group(f"episode_{number}")
            group["observations"] = np.full((steps + 1, 11), number, np.float64)
            group["actions"] = np.zeros((steps, 3), np.float32)
            group["rewards"] = np.ones(steps)
            group["terminations"] = np.arange(steps) == steps - 1
            group["truncations"] = np.zeros(steps, bool)
    data = minari(tmp_path, "train")
    assert [len(one) for one in data.trajectories] == [5, 2]  # in the order of their numbers
    assert data.trajectories[0].observations[0, 0] == 2
    assert data.environment.name == "Hopper-v5"
    with h5py.File(path, "a") as file:
        del file["episode_2/rewards"]
        file["episode_2/rewards"] = np.ones(6)
    with pytest.raises(CorruptData, match="episode_2 must have one observation more"):
        minari(tmp_path, "train")
    with pytest.raises(MissingData, match="expert-v0"):
        minari(tmp_path, "train", quality="expert")
