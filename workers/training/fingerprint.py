"""Identity of a training: a checkpoint of another training must never be resumed."""

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
    """Plain values that must match for a checkpoint to belong to this training."""
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
        # Dropout and drop-path draws depend on a process's part of the batch.
        "devices": processes,
    }


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def environment() -> dict[str, object]:
    """Environment that affects the rounding of a step; a change is a warning, not an error."""
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads()}


def check_same_training(found: Mapping[str, object], wanted: Mapping[str, object], folder: Path) -> None:
    """Compare a checkpoint's identity with that of the resuming training.

    Raises:
        ValueError: they differ; the message names the differences.
    """
    different = sorted(key for key in wanted if found.get(key) != wanted[key])
    if different:
        raise ValueError(
            f"the checkpoint in {folder} was made by another training (different: {', '.join(different)}); "
            "remove it or train in another folder"
        )
