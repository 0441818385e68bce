from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from torch import nn

from assay.models import primal_vit as module
from assay.models.attention.primal import PrimalAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.auxiliary import collected
from assay.models.primal_vit import PRESETS, primal_vit
from assay.models.vit import PRESETS as DEIT
from assay.workers.evaluation.efficiency import count_flops, inference

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 48, "depth": 4, "heads": 3, "rank": 4}


def count(build: Callable[[], nn.Module]) -> int:
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build().parameters())


@pytest.mark.parametrize(("rank", "parameters"), [(96, 22_142_696), (64, 22_062_760), (32, 21_982_824)])
def test_primal_plus_has_the_published_number_of_parameters(rank: int, parameters: int) -> None:
    build = PRESETS["primal_plus_deit_small"].build
    assert count(functools.partial(build, 1000, 3, rank=rank)) == parameters
    assert count(functools.partial(primal_vit, 1000, 3, rank=rank)) == parameters


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("deit_tiny", 5_717_416), ("deit_tiny_4heads", 5_717_416), ("deit_small", 22_050_664)],
)
def test_deit_has_the_published_number_of_parameters(name: str, parameters: int) -> None:
    assert count(functools.partial(DEIT[name].build, 1000, 3)) == parameters


def test_deit_takes_any_attention_in_any_layers() -> None:
    small = {"image_size": 32, "patch_size": 16}
    model: Any = DEIT["deit_tiny_4heads"].build(10, 1, attention="primal", layers="last", **small)
    assert [type(block.attn) for block in model.blocks] == [SoftmaxAttention] * 11 + [PrimalAttention]
    assert {block.attn.heads for block in model.blocks} == {4}
    assert model.blocks[-1].attn.we.shape == (4, 5, 32)


def test_every_layer_of_primal() -> None:
    with torch.device("meta"):
        model: Any = PRESETS["primal_deit_small"].build(1000, 3)
    assert {type(block.attn) for block in model.blocks} == {PrimalAttention}
    total = sum(parameter.numel() for parameter in model.parameters())
    assert f"{total:,} parameters" in PRESETS["primal_deit_small"].summary


def test_parameters_reach_the_attention() -> None:
    model: Any = primal_vit(
        10,
        1,
        **SMALL,
        primal_layers=[1],
        eta=0.2,
        ksvd_form="paper",
        ksvd_reduction="example",
        r_scores=False,
    )
    assert [type(block.attn) is PrimalAttention for block in model.blocks] == [False, True, False, False]
    attention = model.blocks[1].attn
    assert (attention.eta, attention.ksvd_form, attention.ksvd_reduction) == (0.2, "paper", "example")
    assert attention.we.shape == (3, 17, 4)
    assert attention.concate_weight.in_features == 4


def test_default_loss_is_that_of_the_released_image_code() -> None:
    attention = primal_vit(10, 1, **SMALL).blocks[-1].attn
    assert (attention.ksvd_form, attention.ksvd_reduction, attention.ksvd_trace) == (
        "code",
        "batch",
        "parameters",
    )


def test_weights_are_named_as_those_of_deit_and_of_the_authors() -> None:
    theirs = set(timm.create_model("deit_small_patch16_224", img_size=32, num_classes=10).state_dict())
    ours = set(DEIT["deit_small"].build(10, 3, image_size=32).state_dict())
    assert ours == theirs
    primal = set(PRESETS["primal_plus_deit_small"].build(10, 3, image_size=32).state_dict())
    last = "blocks.11.attn."
    own = {"qk.weight", "qk.bias", "we", "wr", "Lambda", "concate_weight.weight", "concate_weight.bias"}
    assert primal - theirs == {last + name for name in own}
    assert theirs - primal == {last + "qkv.weight", last + "qkv.bias"}


def analytic(tokens: int, width: int, rank: int, rows: int) -> int:
    """Multiply-adds of a layer's attention: q and k, W_e|X and W_r|X, e and r, W_o, and proj."""
    return width * (
        2 * tokens * width + 2 * rows * rank + 2 * tokens * rank + 2 * tokens * rank + tokens * width
    )


@pytest.mark.parametrize(("tokens", "rank"), [(197, 96), (197, 8), (1024, 8), (4096, 8)])
def test_counted_operations_are_those_of_the_formula(tokens: int, rank: int) -> None:
    attention = PrimalAttention(384, 6, rank=rank, tokens=tokens).eval()
    x = torch.randn(1, tokens, 384)
    rows = min(10 * rank, tokens)
    assert count_flops(inference(attention, x, "float32")) == 2 * analytic(tokens, 384, rank, rows)


def test_the_published_model_needs_fewer_operations_than_deit() -> None:
    """In the last layer: O(N p s) in place of O(N^2 d_v)."""
    softmax = SoftmaxAttention(384, 6).eval()
    x = torch.randn(1, 197, 384)
    counted = count_flops(inference(softmax, x, "float32"))
    assert counted == 2 * (4 * 197 * 384**2 + 2 * 197**2 * 384)
    assert (analytic(197, 384, 96, 197), counted // 2) == (130_719_744, 146_000_640)


@pytest.mark.parametrize("layers", ["last", "all"])
def test_learns_from_both_losses(layers: str) -> None:
    model = primal_vit(10, 1, **SMALL, primal_layers=layers).train()
    images, labels = torch.randn(4, 1, 16, 16), torch.tensor([0, 1, 2, 3])
    with collected() as losses:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    assert len(losses) == 1  # averaged over the layers
    sum(losses, loss).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_rules(broken: Callable[..., list[str]]) -> None:
    message = "projection must not be data_independent in every layer: the class token would see no patch"
    fits = {**SMALL, "projection": "data_dependent"}
    assert broken(module, **fits, primal_layers="all") == []
    assert broken(module, **{**SMALL, "projection": "data_independent"}, primal_layers="last") == []
    for layers in ("all", [0, 1, 2, 3]):
        assert broken(module, **{**SMALL, "projection": "data_independent"}, primal_layers=layers) == [
            message
        ]
    with pytest.raises(ValueError, match="must not be in every layer"):
        primal_vit(10, 1, **SMALL, primal_layers="all", projection="data_independent")
