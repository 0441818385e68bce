"""Segmenter: sizes, paddings, positions, and the backbones that it takes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate, pad

from models import segmenter as module
from models.attention.rpc import RPCAttention
from models.attention.softmax import SoftmaxAttention
from models.from_timm import timm
from models.rpc_symvit import rpc_symvit
from models.segmenter import BACKBONES, Segmenter, segmenter
from models.transformer import VisionTransformer
from models.vit import vit
from service.contract.catalog import load
from workers import catalog
from workers.training.optimisers import undecayed_names

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 48, "depth": 2, "heads": 3}
SMALL_VIT = functools.partial(vit, **SMALL)


def build(**parameters: Any) -> Segmenter:
    model = segmenter(5, 1, **{"backbone": SMALL_VIT, **parameters})
    assert isinstance(model, Segmenter)
    return model.double().eval()


def count(**parameters: Any) -> int:
    return sum(parameter.numel() for parameter in segmenter(150, 3, **parameters).parameters())


def test_parameter_counts() -> None:
    # ViT-tiny without its head of 193 * 1000 weights, then what the decoders have by their definition.
    encoder, width, classes = 5_717_416 - 193_000, 192, 150
    block = 12 * width**2 + 13 * width
    mask = 2 * block + classes * width + (width + 1) * width + 2 * width**2 + 2 * width + 2 * classes
    assert count(decoder="linear") == encoder + (width + 1) * classes == 5_553_366
    assert count() == encoder + mask == 6_554_412
    at_512 = functools.partial(vit, image_size=512)
    assert count(backbone=at_512) == encoder + mask + (32**2 - 14**2) * width


@pytest.mark.parametrize("decoder", ["linear", "mask_transformer"])
@pytest.mark.parametrize("size", [(16, 16), (24, 16), (13, 22), (3, 5)])
def test_any_size_gives_logits_for_each_pixel(decoder: str, size: tuple[int, int]) -> None:
    logits = build(decoder=decoder)(torch.randn(2, 1, *size, dtype=torch.float64))
    assert logits.shape == (2, 5, *size)
    assert torch.isfinite(logits).all()


def test_composition_at_the_models_own_size() -> None:
    model = build()
    images = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    tokens = model.encoder.forward_features(images)
    maps = model.decoder(tokens[:, 1:], (4, 4))
    expected = interpolate(maps, size=(16, 16), mode="bilinear", align_corners=False)
    assert torch.equal(model(images), expected)


def test_padding_is_zero_at_the_right_and_at_the_bottom() -> None:
    model = build()
    images = torch.randn(1, 1, 14, 11, dtype=torch.float64)
    padded = model(pad(images, (0, 1, 0, 2)))
    assert torch.equal(model(images), padded[:, :, :14, :11])


def test_image_size_is_the_backbones_unless_given() -> None:
    assert build().image_size == 16
    model = build(image_size=22)
    assert model.image_size == 22
    assert model.encoder.pos_embed.shape == (1, 17, 48)


def test_epsilon_of_every_layer_norm() -> None:
    norms = [part for part in build().modules() if isinstance(part, torch.nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-5}


def test_heads_of_the_decoder() -> None:
    assert build().decoder.blocks[0].attn.heads == 1
    assert build(decoder_heads=3).decoder.blocks[0].attn.heads == 3
    assert segmenter(5, 1).decoder.blocks[0].attn.heads == 3
    with pytest.raises(ValueError, match="heads must divide width: got width 48 and heads 5"):
        build(decoder_heads=5)


def test_attention_of_the_backbone_stays_and_the_decoder_has_softmax() -> None:
    model = build(backbone=functools.partial(rpc_symvit, **SMALL))
    assert type(model.encoder.blocks[0].attn) is RPCAttention
    assert {type(block.attn) for block in model.decoder.blocks} == {SoftmaxAttention}


def test_class_embeddings_are_not_decayed() -> None:
    undecayed = undecayed_names(build())
    assert {"decoder.cls_emb", "encoder.pos_embed", "encoder.cls_token"} <= undecayed
    assert "decoder.proj_patch" not in undecayed


def test_every_weight_and_pixel_has_a_gradient() -> None:
    model = build(image_size=14)
    images = torch.randn(2, 1, 14, 14, dtype=torch.float64, requires_grad=True)
    model(images).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert images.grad is not None
    assert images.grad.all()


def test_backbones_are_the_vision_transformers_of_the_catalog() -> None:
    found = {}
    for component in load().list("model"):
        builder = catalog.resolve(component)
        if component.parameters.get("required") or component.name == "segmenter":
            continue
        with torch.device("meta"):
            if isinstance(builder(0, 3), VisionTransformer):
                found[component.name] = builder
    assert dict(BACKBONES) == found


def test_what_is_no_backbone_is_refused(broken: Callable[..., list[str]]) -> None:
    others = {"decoder": "linear", "image_size": None}
    assert broken(module, backbone="vit", **others) == []
    assert broken(module, backbone="timm", **others) == [
        f"backbone must be a vision transformer of the catalog: {', '.join(BACKBONES)}"
    ]
    with pytest.raises(ValueError, match="no backbone is called 'vitt'"):
        segmenter(5, 1, backbone="vitt")
    resnet = functools.partial(timm, architecture="resnet18")
    with pytest.raises(ValueError, match="must be a vision transformer: got ResNet"):
        segmenter(5, 1, backbone=resnet)


def test_a_job_names_backbone_and_attention() -> None:
    attention = {"name": "rpc", "params": {"iterations": 2}}
    params = {"backbone": {"name": "vit", "params": {**SMALL, "attention": attention}}, "decoder": "linear"}
    model = catalog.build("model", "segmenter", params)(5, 1)
    assert isinstance(model, Segmenter)
    assert {block.attn.iterations for block in model.encoder.blocks} == {2}
