"""A repository of the hub to pull, and the command `assay pull`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import safetensors.torch
import torch

from assay.service.cli.arguments import add_pull
from assay.service.cli.commands import request_of
from assay.workers.weights import pull
from tests.support.hub_server import Hub, HubRepository

CONFIG = {
    "architectures": ["ViTForImageClassification"],
    "model_type": "vit",
    "image_size": 32,
    "num_channels": 3,
    "id2label": {"10": "k", "2": "c", "0": "a"},
}


TENSORS = {"a": torch.arange(200_000.0)}


BIG = safetensors.torch.save(TENSORS)


MODEL = HubRepository(
    {
        "config.json": json.dumps(CONFIG).encode(),
        "model.safetensors": BIG,
        "preprocessor_config.json": b'{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}',
        "modeling_vit.py": b"import os",
        "pytorch_model.bin": b"pickle",
        "onnx/model.safetensors": b"other",
    }
)


def run(root: Path, *arguments: str) -> int:
    parser = argparse.ArgumentParser()
    add_pull(parser.add_subparsers())
    given = parser.parse_args(["pull", "--weights-root", str(root), *arguments])
    return pull.main(json.loads(json.dumps(request_of(given))))


def files(hub: Hub) -> list[str]:
    return [path.rpartition("/")[2] for path, _ in hub.requests if "/resolve/" in path]
