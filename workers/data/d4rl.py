"""D4RL's gym-mujoco sets from their files: HalfCheetah, Hopper and Walker2d, the sets of the Primal paper.

Fu et al. 2020, "D4RL: Datasets for Deep Data-Driven Reinforcement Learning", "v2" files. Episodes are played
in gymnasium's "v4" environments, which need mujoco: D4RL's "v2" are the same models in an older simulator, so
returns may differ a little.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from assay.workers.data.formats import parameters
from assay.workers.data.formats.control.environments import Environment, by_environment
from assay.workers.data.formats.control.trajectories import Trajectories
from assay.workers.data.formats.control.trajectory_files import read_transitions, recorded
from assay.workers.data.formats.dataset import MissingData
from assay.workers.data.formats.folders import check_inside, find_folder

__all__ = ["d4rl"]

TASKS = ("control",)
PAPER = "Fu et al. 2020, D4RL: Datasets for Deep Data-Driven Reinforcement Learning"

Locomotion = Literal["halfcheetah", "hopper", "walker2d"]
Quality = Literal["random", "medium", "medium-replay", "medium-expert", "expert"]

# D4RL's reference returns, and targets and scale of the Decision Transformer's code, from memory: no copy was
# at hand, and the Primal paper prints none of them.
ENVIRONMENTS = {
    "halfcheetah": Environment(
        "HalfCheetah-v4", 17, 6, False, 1000, -280.178953, 12135.0, 12000.0, 1000.0, "mujoco"
    ),
    "hopper": Environment("Hopper-v4", 11, 3, False, 1000, -20.272305, 3234.3, 3600.0, 1000.0, "mujoco"),
    "walker2d": Environment("Walker2d-v4", 17, 6, False, 1000, 1.629008, 4592.3, 5000.0, 1000.0, "mujoco"),
}
FACTS = {
    "max_steps": 1000,
    "package": "gymnasium",
    "by_parameter": {"environment": by_environment(ENVIRONMENTS)},
}


def d4rl(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    environment: Locomotion = "hopper",
    quality: Quality = "medium",
    folder: parameters.Folder = "d4rl",
    episodes: parameters.Episodes = 100,
) -> Trajectories:
    """D4RL's HalfCheetah, Hopper and Walker2d (v2), from FOLDER/hopper_medium-v2.hdf5 and so on, or .npz.

    HDF5 needs the package h5py; episodes need gymnasium and mujoco.

    Args:
        split: "train" are the trajectories of the file, "test" are episodes that a policy is judged in.
        environment: the simulated body.
        quality: of the policies that made the trajectories.
    """
    path = _path(root, folder, f"{environment}_{quality.replace('-', '_')}-v2")
    trajectories = recorded(read_transitions, path)
    return Trajectories(
        name="d4rl",
        environment=ENVIRONMENTS[environment],
        recorded=trajectories,
        ids=[f"{path.stem}/{number:05d}" for number in range(len(trajectories))],
        episodes=None if split == "train" else episodes,
    )


def _path(root: Path | None, folder: str, stem: str) -> Path:
    root, where = find_folder(root, folder)
    for suffix in (".hdf5", ".npz"):
        path = where / f"{stem}{suffix}"
        if path.is_file():
            check_inside(path, root)
            return path
    raise MissingData(
        f"the data set 'd4rl' wants {where / stem}.hdf5 (or .npz), one of D4RL's gym-mujoco files, version 2"
    )
