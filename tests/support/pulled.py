"""Weights in a weights folder, as `assay pull` leaves them, without a download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor

from assay.service.contract.weights.pulled import parse_reference
from assay.workers.weights.pulled import PulledWeights, keep

IMAGENET_FACTS = {
    "classes": 1000,
    "channels": 3,
    "image_size": 160,
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
}


def pull_tensors(root: Path, reference: str, tensors: dict[str, Tensor], **changes: Any) -> PulledWeights:
    """Tensors as the pulled weights of a whole reference; `changes` are arguments of `keep`."""
    staged = root / ".partial" / "made"
    staged.mkdir(parents=True)
    safetensors.torch.save_file(tensors, staged / "model.safetensors")
    options: dict[str, Any] = {"license": "apache-2.0", "config": IMAGENET_FACTS} | changes
    return keep(staged, root, parse_reference(reference), **options)
