from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch

from assay.models import vit as module
from assay.models.attention.rpc import RPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.layers.attention.lookup import attentions
from assay.models.vit import vit

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 48, "depth": 4, "heads": 3}


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def test_default_is_vit_tiny() -> None:
    assert count(vit(1000, 3)) == 5_717_416


def test_equals_timms_vision_transformer_with_its_weights() -> None:
    theirs = timm.create_model(
        "vit_tiny_patch16_224", img_size=16, patch_size=4, embed_dim=48, depth=4, num_classes=10, in_chans=1
    ).eval()
    ours = vit(10, 1, **SMALL).eval()
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 1, 16, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "chosen"), [("first", [0]), ("last", [3]), ([1, 2], [1, 2]), ("all", [0, 1, 2, 3])]
)
def test_chosen_layers_have_the_attention_and_the_others_softmax(layers: Any, chosen: list[int]) -> None:
    factory = functools.partial(RPCAttention, iterations=6)
    model = vit(10, 1, **SMALL, attention=factory, layers=layers)
    for layer, block in enumerate(model.blocks):
        assert type(block.attn) is (RPCAttention if layer in chosen else SoftmaxAttention)
        assert getattr(block.attn, "iterations", 6) == 6
    assert torch.isfinite(model(torch.randn(2, 1, 16, 16))).all()


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(attentions()))
def test_any_attention_of_the_catalog_in_some_layers(name: str) -> None:
    model = vit(10, 1, **SMALL, attention=name, layers=[0, 2]).eval()
    assert {model.blocks[layer].attn.name for layer in (0, 2)} == {name}
    assert type(model.blocks[1].attn) is SoftmaxAttention
    images = torch.randn(2, 1, 16, 16, requires_grad=True)
    logits = model(images)
    (gradient,) = torch.autograd.grad(logits.square().sum(), images)
    assert gradient.abs().amax(dim=(1, 2, 3)).min() > 0
    assert not torch.equal(logits[0], logits[1])


def test_takes_the_name_of_an_attention() -> None:
    assert type(vit(10, 1, **SMALL, attention="rpc").blocks[0].attn) is RPCAttention
    with pytest.raises(ValueError, match="did you mean 'softmax'"):
        vit(10, 1, **SMALL, attention="sofmax")


def test_rules(broken: Callable[..., list[str]]) -> None:
    assert broken(module, **SMALL, layers="all") == []
    assert broken(module, **{**SMALL, "heads": 5}, layers=[0, 3]) == ["heads must divide width"]
    assert broken(module, **{**SMALL, "patch_size": 5}, layers="last") == [
        "patch_size must divide image_size"
    ]
    assert broken(module, **{**SMALL, "patch_size": 32}, layers="first") == [
        "patch_size must not be larger than image_size",
        "patch_size must divide image_size",
    ]
    assert broken(module, **SMALL, layers=[4]) == [
        "layers must be all, first, last, or a list of layers from 0 to depth - 1"
    ]


@pytest.mark.parametrize("change", [{"heads": 5}, {"patch_size": 5}, {"patch_size": 32}, {"layers": [4]}])
def test_a_broken_rule_is_a_value_error(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        vit(10, 1, **{**SMALL, **change})
