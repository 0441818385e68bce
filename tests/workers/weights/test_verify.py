"""Weights that do not fit: what the file is, and numbers that no network has."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from timm import create_model

from assay.models.symvit import symvit
from tests.support.foreign_weights import FAN, SHAPE, checked, fan, nvidia, saved, vit_tensors

KINDS = {
    "distilled": ({"dist_token": (1, 1, 12), "head_dist.weight": (10, 12)}, "this is a distilled DeiT"),
    "scaled": ({"blocks.0.ls1.gamma": (12,)}, "LayerScale"),
    "pooled": ({"fc_norm.weight": (12,)}, "classifies the mean of the tokens"),
    "transformers": ({"vit.encoder.layer.0.attention.output.dense.weight": (12, 12)}, "Hugging Face"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_it_is_is_said_beside_the_keys(tmp_path: Path, kind: str) -> None:
    extra, told = KINDS[kind]
    tensors = vit_tensors() | {name: torch.zeros(shape) for name, shape in extra.items()}
    verdict, error = checked(saved(tmp_path, tensors))
    assert verdict["unexpected"] == sorted(extra)
    assert told in error
    assert any(told in reason for reason in verdict["other"])


def test_timms_distilled_deit_is_no_vit_but_timms(tmp_path: Path) -> None:
    network = create_model("deit_tiny_distilled_patch16_224", num_classes=10, in_chans=1, depth=1)
    path = saved(tmp_path, dict(network.state_dict()))
    shape = {**SHAPE, "image_size": 224, "patch_size": 16, "width": 192, "heads": 3}
    assert "'deit_tiny_distilled_patch16_224'" in checked(path, shape=shape)[1]
    whole = create_model("deit_tiny_distilled_patch16_224", num_classes=10, in_chans=1)
    path = saved(tmp_path, dict(whole.state_dict()))
    verdict, error = checked(path, "timm", {"architecture": "deit_tiny_distilled_patch16_224"})
    assert (error, verdict["layout"], verdict["classes"]) == (None, "timm", 10)


def test_the_other_attention_is_named(tmp_path: Path) -> None:
    symmetric = dict(symvit(10, 1, **SHAPE).state_dict())
    assert "k, v (symmetric attention, model 'symvit')" in checked(saved(tmp_path, symmetric))[1]
    assert "q, k, v (softmax attention" in checked(saved(tmp_path, vit_tensors()), "symvit")[1]


def test_a_body_without_a_head_is_named(tmp_path: Path) -> None:
    body = {name: tensor for name, tensor in vit_tensors().items() if not name.startswith("head")}
    assert "it has no head for classes" in checked(saved(tmp_path, body))[1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_numbers_that_are_none_are_rejected(tmp_path: Path, bad: float, dtype: torch.dtype) -> None:
    tensors = {name: tensor.to(dtype) for name, tensor in vit_tensors().items()}
    assert checked(saved(tmp_path, tensors))[1] is None
    tensors["norm.bias"][3:5] = bad
    verdict, error = checked(saved(tmp_path, tensors))
    assert error == "norm.bias has 2 values of 12 that are NaN or infinite"
    assert verdict["other"] == [error]


@pytest.mark.parametrize(
    ("dtype", "named"),
    [(torch.int8, "I8"), (torch.uint8, "U8"), (torch.float8_e4m3fn, "F8_E4M3"), (torch.bool, "BOOL")],
)
def test_quantised_weights_are_rejected(tmp_path: Path, dtype: torch.dtype, named: str) -> None:
    tensors = vit_tensors()
    tensors["norm.weight"] = tensors["norm.weight"].to(dtype)
    _, error = checked(saved(tmp_path, tensors))
    assert error.startswith(f"norm.weight is of dtype {named}, allowed: F16, BF16, F32, F64")


def test_counters_of_batch_normalisation_may_be_integers_or_floats(tmp_path: Path) -> None:
    tensors = nvidia(dict(fan().state_dict()))
    name = next(name for name in tensors if name.endswith("num_batches_tracked"))
    assert tensors[name].dtype == torch.int64
    assert checked(saved(tmp_path, tensors), "fan_vit", FAN)[1] is None
    tensors[name] = torch.tensor(True)
    assert (
        checked(saved(tmp_path, tensors), "fan_vit", FAN)[1] == f"{name} is of dtype BOOL, allowed: integers"
    )
