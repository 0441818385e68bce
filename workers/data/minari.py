"""Minari's MuJoCo sets from their files: the successor of D4RL, with other policies and gymnasium's v5.

Younis et al. 2024, "Minari". Its files are HDF5, read without the package minari. Returns are normalised with
D4RL's references, of earlier versions of the environments.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from assay.workers.data.d4rl import ENVIRONMENTS as D4RL
from assay.workers.data.formats import parameters
from assay.workers.data.formats.control.trajectories import Trajectories
from assay.workers.data.formats.control.trajectory_files import read_episodes, recorded
from assay.workers.data.formats.dataset import MissingData
from assay.workers.data.formats.folders import check_inside, find_folder

__all__ = ["minari"]

TASKS = ("control",)
FACTS = {"max_steps": 1000, "package": "gymnasium"}
PAPER = "Younis et al. 2024, Minari"

Body = Literal["halfcheetah", "hopper", "walker2d"]
Skill = Literal["simple", "medium", "expert"]

ENVIRONMENTS = {name: replace(one, name=one.name.replace("-v4", "-v5")) for name, one in D4RL.items()}


def minari(
    root: parameters.Root,
    split: Literal["train", "test"],
    *,
    environment: Body = "hopper",
    quality: Skill = "medium",
    folder: Annotated[str, "folder"] = "minari",
    episodes: parameters.Episodes = 100,
) -> Trajectories:
    """Minari's HalfCheetah, Hopper and Walker2d, from FOLDER/mujoco/hopper/medium-v0/data/main_data.hdf5 etc.

    Needs the package h5py; episodes need gymnasium and mujoco.

    Args:
        split: "train" are the trajectories of the file, "test" are episodes that a policy is judged in.
        environment: the simulated body.
        quality: of the policies that made the trajectories.
        folder: relative name of the folder; a copy of Minari's own.
    """
    root, where = find_folder(root, folder)
    path = where / "mujoco" / environment / f"{quality}-v0" / "data" / "main_data.hdf5"
    if not path.is_file():
        raise MissingData(f"the data set 'minari' wants {path}, of a copy of Minari's folder of data sets")
    check_inside(path, root)
    trajectories = recorded(read_episodes, path)
    return Trajectories(
        name="minari",
        environment=ENVIRONMENTS[environment],
        recorded=trajectories,
        ids=[f"{environment}/{quality}-v0/{number:05d}" for number in range(len(trajectories))],
        episodes=None if split == "train" else episodes,
    )
