"""Segmenter: sizes, paddings, positions, and the backbones that it takes."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from torch.nn.functional import interpolate, pad

from assay.models.attention.rpc import RPCAttention
from assay.models.attention.softmax import SoftmaxAttention
from assay.models.fan_vit import PRESETS, fan_vit
from assay.models.from_timm import timm
from assay.models.rpc_symvit import rpc_symvit
from assay.models.segmenter import Segmenter, segmenter
from assay.models.vit import vit
from assay.service.catalog.catalog import load
from assay.service.contract.problems import Problems
from assay.workers import catalog
from assay.workers.training.optimisers import undecayed_names

SMALL: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 48, "depth": 2, "heads": 3}
SMALL_VIT = functools.partial(vit, **SMALL)
SMALL_FAN = functools.partial(fan_vit, **SMALL)
each_backbone = pytest.mark.parametrize("backbone", [SMALL_VIT, SMALL_FAN], ids=["vit", "fan"])


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
    # FAN-tiny without its head, its class token, and its two blocks of class attention: each has four
    # projections, an MLP, two LayerNorms and two vectors of scales.
    class_attention = 4 * (width + 1) * width + 8 * width**2 + 5 * width + 4 * width + 2 * width
    fan = 7_319_920 - 193_000 - width - 2 * class_attention
    tiny = PRESETS["fan_vit_tiny"].build
    assert count(backbone=tiny, decoder="linear") == fan + (width + 1) * classes == 6_265_182


@each_backbone
@pytest.mark.parametrize("decoder", ["linear", "mask_transformer"])
@pytest.mark.parametrize("size", [(16, 16), (24, 16), (13, 22), (3, 5)])
def test_any_size_gives_logits_for_each_pixel(backbone: Any, decoder: str, size: tuple[int, int]) -> None:
    logits = build(backbone=backbone, decoder=decoder)(torch.randn(2, 1, *size, dtype=torch.float64))
    assert logits.shape == (2, 5, *size)
    assert torch.isfinite(logits).all()


def test_composition_at_the_models_own_size() -> None:
    model = build()
    images = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    tokens = model.encoder.forward_features(images)
    maps = model.decoder(tokens[:, 1:], (4, 4))
    expected = interpolate(maps, size=(16, 16), mode="bilinear", align_corners=False)
    assert torch.equal(model(images), expected)


@each_backbone
def test_padding_is_zero_at_the_right_and_at_the_bottom(backbone: Any) -> None:
    model = build(backbone=backbone)
    images = torch.randn(1, 1, 14, 11, dtype=torch.float64)
    padded = model(pad(images, (0, 1, 0, 2)))
    assert torch.equal(model(images), padded[:, :, :14, :11])


def test_image_size_is_the_backbones_unless_given() -> None:
    assert build().image_size == 16
    model = build(image_size=22)
    assert model.image_size == 22
    assert model.encoder.pos_embed.shape == (1, 17, 48)


def epsilons(module: torch.nn.Module) -> set[float]:
    return {part.eps for part in module.modules() if isinstance(part, torch.nn.LayerNorm)}


def test_epsilon_of_every_layer_norm() -> None:
    assert epsilons(build()) == {1e-5}
    with_fan = build(backbone=SMALL_FAN)
    assert epsilons(with_fan.encoder) == epsilons(SMALL_FAN(5, 1))
    assert epsilons(with_fan.decoder) == {1e-5}


def test_the_patch_tokens_of_fan_are_those_before_class_attention() -> None:
    torch.manual_seed(0)
    classifier = SMALL_FAN(5, 1).double().eval()
    model = build(backbone=SMALL_FAN)
    kept = {
        name: value for name, value in classifier.state_dict().items() if name in model.encoder.state_dict()
    }
    model.encoder.load_state_dict(kept)
    seen = []
    classifier.cls_attn_blocks[0].register_forward_hook(lambda _module, given, _tokens: seen.append(given[0]))
    images = torch.randn(2, 1, 16, 16, dtype=torch.float64)
    classifier(images)
    tokens, grid = model.encoder.patch_tokens(images)
    assert grid == (4, 4)
    assert torch.equal(tokens, classifier.norm(seen[0][:, 1:]))
    left_out = set(classifier.state_dict()) - set(kept)
    assert left_out
    assert all(name.startswith(model.encoder.CLASSIFIER_ONLY) for name in left_out)


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


@each_backbone
def test_every_weight_and_pixel_has_a_gradient(backbone: Any) -> None:
    model = build(image_size=14, backbone=backbone)
    images = torch.randn(2, 1, 14, 14, dtype=torch.float64, requires_grad=True)
    model(images).square().sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert images.grad is not None
    assert images.grad.all()


# Classes and channels with which a model of a task can be built.
OUTPUTS = {"classification": (0, 3), "series_regression": (1, 3)}


def test_models_that_state_patch_tokens_have_them_and_no_others() -> None:
    stated = {entry.name for entry in load().list("model") if (entry.facts or {}).get("patch_tokens")}
    assert {"vit", "rpc_symvit_tiny", "rpc_asymvit", "fan_vit", "rpc_fan_vit_tiny"} <= stated
    for component in load().list("model"):
        if not component.parameters.get("required") and component.name != "exported":
            with torch.device("meta"):
                built = catalog.resolve(component)(*OUTPUTS.get(component.tasks[0], (3, 3)))
            assert hasattr(built, "patch_tokens") == (component.name in stated), component.name


def test_what_is_no_backbone_is_refused() -> None:
    problems = Problems()
    resnet = {"name": "timm", "params": {"architecture": "resnet18"}}
    load().check_reference(("model",), {"name": "segmenter", "params": {"backbone": resnet}}, problems, ())
    (detail,) = problems.details
    assert detail.loc == ["params", "backbone", "name"]
    assert detail.message == "the model 'timm' has no patch_tokens, which backbone must have"
    assert "fan_vit_tiny" in detail.allowed
    assert "timm" not in detail.allowed
    with pytest.raises(ValueError, match="must give patch tokens: got ResNet"):
        segmenter(5, 1, backbone=functools.partial(timm, architecture="resnet18"))


def test_a_job_names_backbone_and_attention() -> None:
    attention = {"name": "rpc", "params": {"iterations": 2}}
    params = {"backbone": {"name": "vit", "params": {**SMALL, "attention": attention}}, "decoder": "linear"}
    model = catalog.build("model", "segmenter", params)(5, 1)
    assert isinstance(model, Segmenter)
    assert {block.attn.iterations for block in model.encoder.blocks} == {2}
