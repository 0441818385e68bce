"""Identity of a training: a checkpoint of another training must never be resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import torch
from torch import nn

from assay.attacks.randomness import VERSION
from assay.workers import catalog
from assay.workers.data.formats.dataset import ExampleSet
from assay.workers.training.recipe import Recipe

# Fields of a recipe that earlier versions did not have: at their defaults they change nothing, so that a
# training of such a version can be continued.
NEWER = frozenset(
    [
        "decay_everything",
        "momentum_cycle",
        "clip_value",
        "total_batch",
        "total_tokens",
        "validation",
        "selection",
        "judged_every",
        "first_judged",
        "nesterov",
        "by_epoch",
        "epochs_late",
    ]
)
# What is said about the published training, which is not part of this one.
STATED = frozenset({"published_batch", "published_tokens"})


def training_identity(
    classifier: nn.Module,
    data: ExampleSet,
    recipe: Recipe,
    seed: int,
    image_size: int,
    batch_size: int,
    dtype: torch.dtype,
    processes: int,
    *,
    at_once: int | None = None,
    rows: Sequence[int] | None = None,
) -> dict[str, object]:
    """Plain values that must match for a checkpoint to belong to this training.

    `batch_size` counts a step's examples, `at_once` a smaller pass's; `rows` are the trained examples, if not
    all.
    """
    truth = catalog.task(data.task).trained_truth(data)
    layout = [(name, list(tensor.shape)) for name, tensor in classifier.state_dict().items()]
    smaller = {} if at_once is None or at_once >= batch_size else {"accumulated": at_once}
    fewer = {} if rows is None else {"rows": _digest(list(rows))}
    # Of the attack on each batch, and of erased rectangles.
    drawn = recipe.adversarial is not None or recipe.augmentation.erase > 0
    starts = {"draws": VERSION} if drawn else {}
    return {
        "model": _digest(layout),
        "data": _digest([data.name, list(data.ids), truth]),
        "recipe": _digest(_facts(recipe)),
        "seed": seed,
        "image_size": image_size,
        "batch_size": batch_size,
        "dtype": str(dtype),
        # Dropout and drop-path draws depend on a process's part of the batch.
        "devices": processes,
        **smaller,
        **fewer,
        **starts,
    }


def _facts(recipe: Recipe) -> dict[str, object]:
    same = {f.name for f in fields(recipe) if f.name in NEWER and getattr(recipe, f.name) == f.default}
    return {name: value for name, value in asdict(recipe).items() if name not in same | STATED}


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def environment() -> dict[str, object]:
    """Environment that affects the rounding of a step; a change is a warning, not an error."""
    return {"torch": str(torch.__version__), "threads": torch.get_num_threads()}


def check_same_training(found: Mapping[str, object], wanted: Mapping[str, object], folder: Path) -> None:
    """Compare a checkpoint's identity with the resuming training's; the ValueError names differences."""
    different = sorted(key for key in {*wanted, *found} if found.get(key) != wanted.get(key))
    if different:
        raise ValueError(
            f"the checkpoint in {folder} was made by another training (different: {', '.join(different)}); "
            "remove it or train in another folder"
        )
