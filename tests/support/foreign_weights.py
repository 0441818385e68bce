"""Files of weights from elsewhere, and the check of an upload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.fan import FullyAttentionalNetwork
from assay.models.vit import vit
from assay.workers.jobs import check
from assay.workers.jobs.session import Session
from tests.support.weights import disturb

SHAPE: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 12, "depth": 1, "heads": 2}
FAN: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 24, "depth": 2, "heads": 3}


def saved(folder: Path, tensors: dict[str, Tensor]) -> Path:
    path = folder / "weights.safetensors"
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return path


def vit_tensors(**changes: Any) -> dict[str, Tensor]:
    torch.manual_seed(1)
    return dict(vit(10, 1, **(SHAPE | changes)).state_dict())


def model(name: str, shape: dict[str, Any], reading: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "params": shape, "weights": {"checkpoint": "c", **reading}}


def checked(path: Path, name: str = "vit", shape: dict[str, Any] = SHAPE, **reading: Any) -> tuple[Any, Any]:
    request = {"weights": str(path), "spec": {"model": model(name, shape, reading)}}
    answer = check.run(request, Session(), lambda _: None)
    return answer["verdict"], answer["error"]


def nvidia(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """FAN's weights as NVIDIA's code has them."""
    theirs: dict[str, Tensor] = {}
    for name, tensor in ours.items():
        before, found, after = name.rpartition(".attn.qkv.")
        if found:
            queries, rest = tensor.split([len(tensor) // 3, 2 * len(tensor) // 3])
            theirs |= {f"{before}.attn.q.{after}": queries, f"{before}.attn.kv.{after}": rest}
        else:
            theirs[name] = tensor
    return theirs


def fan() -> FullyAttentionalNetwork:
    network = FullyAttentionalNetwork(
        [SoftmaxAttention] * 2,
        classes=10,
        channels=1,
        **{key: value for key, value in FAN.items() if key != "depth"},
    )
    disturb(network)
    return network.eval()
