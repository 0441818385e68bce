"""Which training a checkpoint belongs to: a checkpoint of another one must never be continued."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import cast

import torch
from torch import nn

from assay.workers.data.formats.dataset import DataSet, ExampleSet
from assay.workers.training.recipe import Recipe


def training_identity(
    classifier: nn.Module,
    data: ExampleSet,
    recipe: Recipe,
    seed: int,
    image_size: int,
    batch_size: int,
    dtype: torch.dtype,
    processes: int,
) -> dict[str, object]:
    """What must be equal for a checkpoint to belong to this training; plain values."""
    truth = cast(DataSet, data).labels.tolist() if data.task == "classification" else data.content_sha256()
    layout = [(name, list(tensor.shape)) for name, tensor in classifier.state_dict().items()]
    return {
        "model": _digest(layout),
        "data": _digest([data.name, list(data.ids), truth]),
        "recipe": _digest(asdict(recipe)),
        "seed": seed,
        "image_size": image_size,
        "batch_size": batch_size,
        "dtype": str(dtype),
        # Dropout and drop-path draw for the part of a batch that a process has.
        "devices": processes,
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def environment() -> dict[str, object]:
    """What the rounding of a step depends on; a change is worth a warning, not a refusal."""
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads()}


def check_same_training(found: Mapping[str, object], wanted: Mapping[str, object], folder: Path) -> None:
    """Compare the identity in a checkpoint with that of the training that wants to continue it.

    Raises:
        ValueError: they differ; the message names in what.
    """
    different = sorted(key for key in wanted if found.get(key) != wanted[key])
    if different:
        raise ValueError(
            f"the checkpoint in {folder} was made by another training (different: {', '.join(different)}); "
            "remove it or train in another folder"
        )
