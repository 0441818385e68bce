"""Files of trajectories: D4RL's transitions end to end, and Minari's episodes; HDF5 needs the package h5py.

n = trajectories, M = steps of all of them, S = numbers of an observation, A = numbers of an action.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.workers.data.formats.control.environments import EXTRA
from assay.workers.data.formats.control.trajectories import Trajectory
from assay.workers.data.formats.dataset import CorruptData, MissingData

ROUNDING = 1e-3  # Recorded actions may leave [-1, 1] by rounding

Read = Callable[[Path], list[Trajectory]]


@lru_cache(maxsize=4)
def _kept(read: Read, path: Path, changed: int) -> tuple[Trajectory, ...]:
    del changed
    return tuple(read(path))


def recorded(read: Read, path: Path) -> tuple[Trajectory, ...]:
    """A file's trajectories, kept in memory until the file changes."""
    return _kept(read, path, path.stat().st_mtime_ns)


def read_transitions(path: Path) -> list[Trajectory]:
    """The trajectories of a file in D4RL's layout, HDF5 or NPZ.

    `observations` (M, S), `actions` (M, A), `rewards` (M,), `terminals` (M,) and `timeouts` (M,), either of
    which ends a trajectory. Steps after the last end are left out.
    """
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    arrays = _npz(path, names) if path.suffix == ".npz" else _hdf5(path, names)
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) != 1:
        raise CorruptData(f"{path}: arrays of different lengths: {lengths}")
    ended = arrays["terminals"].astype(bool)
    stops = np.flatnonzero(ended | arrays["timeouts"].astype(bool)) + 1
    if len(stops) == 0:
        raise CorruptData(f"{path}: no trajectory ends: all terminals and timeouts are false")
    found = []
    for start, stop in zip([0, *stops[:-1].tolist()], stops.tolist(), strict=True):
        part = {name: values[start:stop] for name, values in arrays.items()}
        found.append(_trajectory(part, ended=bool(ended[stop - 1])))
    return found


def read_episodes(path: Path) -> list[Trajectory]:
    """The trajectories of a `main_data.hdf5` in Minari's layout.

    Groups `episode_0`, ... with `observations` (T + 1, S), the last of which is left out, `actions` (T, A),
    `rewards`, `terminations` and `truncations` (T,).
    """
    found = []
    with _opened(path) as file:
        groups = sorted((name for name in file if name.startswith("episode_")), key=_number)
        for name in groups:
            arrays = _arrays(path, file[name], ("observations", "actions", "rewards", "terminations"))
            steps = len(arrays["rewards"])
            if len(arrays["observations"]) != steps + 1 or steps == 0:
                raise CorruptData(f"{path}: {name} must have one observation more than rewards")
            ended = bool(arrays["terminations"][-1])
            found.append(_trajectory({key: values[:steps] for key, values in arrays.items()}, ended=ended))
    if not found:
        raise CorruptData(f"{path}: there is no group episode_0")
    return found


def _trajectory(arrays: Mapping[str, NDArray[Any]], *, ended: bool) -> Trajectory:
    actions = np.asarray(arrays["actions"], dtype=np.float32)
    if np.abs(actions).max(initial=0.0) <= 1 + ROUNDING:
        actions = actions.clip(-1.0, 1.0)
    return Trajectory(
        np.asarray(arrays["observations"], dtype=np.float32),
        actions,
        np.asarray(arrays["rewards"], dtype=np.float64),
        ended,
    )


def _npz(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return _arrays(path, file, names)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise CorruptData(f"{path}: {error}") from error


def _hdf5(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    with _opened(path) as file:
        return _arrays(path, file, names)


def _opened(path: Path) -> Any:
    try:
        import h5py
    except ImportError as error:
        raise MissingData(
            f"{path} is HDF5: reading it needs the Python package h5py, which this worker does not have:"
            f" pip install '{EXTRA}'"
        ) from error
    try:
        return h5py.File(path, "r")
    except OSError as error:
        raise CorruptData(f"{path} cannot be read as HDF5: {error}") from error


def _arrays(path: Path, file: Any, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    if missing := [name for name in names if name not in file]:
        raise CorruptData(f"{path}: it has no array {missing[0]!r}; wanted: {', '.join(names)}")
    return {name: np.asarray(file[name]) for name in names}


def _number(name: str) -> int:
    digits = name.removeprefix("episode_")
    return int(digits) if digits.isdigit() else -1
