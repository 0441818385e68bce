"""Files of trajectories: where each one ends, what is left out, and files that are refused by name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.workers.data.formats.control.trajectories import Trajectory
from assay.workers.data.formats.control.trajectory_files import read_episodes, read_transitions, recorded
from assay.workers.data.formats.dataset import CorruptData

h5py = pytest.importorskip("h5py")


def transitions(**changed: Any) -> dict[str, Any]:
    """Seven steps: three to a terminal, two to a timeout, two that no end follows."""
    arrays = {
        "observations": np.arange(14.0).reshape(7, 2),
        "actions": np.linspace(-1, 1, 7)[:, None],
        "rewards": np.arange(7.0),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1, 0, 0]),
    }
    return arrays | changed


def write(path: Path, arrays: dict[str, Any]) -> Path:
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for name, values in arrays.items():
                file[name] = values
    return path


@pytest.mark.parametrize("name", ["d4rl.npz", "d4rl.hdf5"])
def test_a_trajectory_ends_at_a_terminal_or_a_timeout(tmp_path: Path, name: str) -> None:
    first, second = read_transitions(write(tmp_path / name, transitions()))
    assert (len(first), first.ended) == (3, True)
    assert (len(second), second.ended) == (2, False)
    assert second.observations.tolist() == [[6, 7], [8, 9]]
    assert second.rewards.tolist() == [3, 4]
    np.testing.assert_allclose(second.actions[:, 0], [0, 1 / 3], atol=1e-7)
    kinds = (first.observations.dtype, first.actions.dtype, first.rewards.dtype)
    assert kinds == (np.float32, np.float32, np.float64)


def test_actions_that_leave_their_range_by_rounding_are_clipped(tmp_path: Path) -> None:
    actions = np.array([[1.0005], [-1.0009], [0.5], [0], [0], [0], [0]])
    first, _ = read_transitions(write(tmp_path / "a.npz", transitions(actions=actions)))
    assert first.actions.flatten().tolist() == [1.0, -1.0, 0.5]
    # Farther out they are kept: another check refuses them by name.
    first, _ = read_transitions(write(tmp_path / "b.npz", transitions(actions=actions * 2)))
    np.testing.assert_allclose(first.actions.flatten(), [2.001, -2.0018, 1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rewards": np.zeros(6)}, "arrays of different lengths: .*'rewards': 6"),
        ({"terminals": np.zeros(7), "timeouts": np.zeros(7)}, "no trajectory ends"),
    ],
)
def test_wrong_arrays_are_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(CorruptData, match=rf"d4rl\.npz: {message}"):
        read_transitions(write(tmp_path / "d4rl.npz", transitions(**changed)))


@pytest.mark.parametrize("name", ["d4rl.npz", "d4rl.hdf5"])
def test_a_missing_array_is_named(tmp_path: Path, name: str) -> None:
    arrays = transitions()
    del arrays["timeouts"]
    with pytest.raises(CorruptData, match=rf"{name}: it has no array 'timeouts'; wanted: observations, "):
        read_transitions(write(tmp_path / name, arrays))


@pytest.mark.parametrize(("name", "message"), [("a.npz", r"a\.npz: "), ("a.hdf5", "cannot be read as HDF5")])
def test_files_of_another_kind_are_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"no archive of arrays")
    with pytest.raises(CorruptData, match=message):
        read_transitions(tmp_path / name)


def test_an_archive_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **transitions(rewards=np.array([{}] * 7)))
    with pytest.raises(CorruptData, match="allow_pickle"):
        read_transitions(tmp_path / "a.npz")


def episodes(path: Path, lengths: dict[str, int], *, ended: bool = True, extra: int = 1) -> Path:
    """Groups of this many steps; observations count from a hundred times the length."""
    with h5py.File(path, "w") as file:
        for name, steps in lengths.items():
            group = file.create_group(name)
            group["observations"] = (np.arange(steps + extra) + 100 * steps)[:, None].astype(np.float64)
            group["actions"] = np.zeros((steps, 1))
            group["rewards"] = np.arange(float(steps))
            group["terminations"] = np.arange(steps) == (steps - 1 if ended else -1)
            group["truncations"] = np.zeros(steps, bool)
    return path


def test_episodes_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    path = episodes(tmp_path / "main_data.hdf5", {"episode_10": 4, "episode_2": 3, "episode_0": 2})
    found = read_episodes(path)
    assert [len(one) for one in found] == [2, 3, 4]
    assert all(one.ended for one in found)
    # The observation after the last action is left out.
    assert found[0].observations.flatten().tolist() == [200, 201]


def test_an_episode_without_a_termination_was_cut(tmp_path: Path) -> None:
    (found,) = read_episodes(episodes(tmp_path / "main_data.hdf5", {"episode_0": 2}, ended=False))
    assert not found.ended


@pytest.mark.parametrize(
    ("lengths", "extra", "message"),
    [
        ({}, 1, "there is no group episode_0"),
        ({"other": 2}, 1, "there is no group episode_0"),
        ({"episode_3": 2}, 0, "episode_3 must have one observation more than rewards"),
        ({"episode_0": 0}, 1, "episode_0 must have one observation more than rewards"),
    ],
)
def test_wrong_episodes_are_refused(
    tmp_path: Path, lengths: dict[str, int], extra: int, message: str
) -> None:
    with pytest.raises(CorruptData, match=message):
        read_episodes(episodes(tmp_path / "main_data.hdf5", lengths, extra=extra))


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    seen: list[Path] = []

    def read(path: Path) -> list[Trajectory]:
        seen.append(path)
        return []

    path = tmp_path / "file"
    path.touch()
    recorded(read, path)
    recorded(read, path)
    assert len(seen) == 1
    os.utime(path, ns=(1, 1))
    recorded(read, path)
    assert len(seen) == 2
