"""Key maps: networks with the names and layouts of elsewhere answer as ours do with their weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from timm import create_model
from torch import Tensor, nn

from assay.models.fan_vit import fan_vit
from assay.models.layers.layers import Classifier
from assay.models.rpc_fan_vit import rpc_fan_vit
from assay.models.segmenter import segmenter
from assay.models.symvit import symvit
from assay.models.vit import vit
from assay.models.weights.layouts import LAYOUTS, Layout, find_layout, layouts_for
from tests.support.foreign import loaded_from, shapes_of
from tests.support.weights import disturb

SHAPE: dict[str, Any] = {"image_size": 16, "patch_size": 8, "width": 12, "depth": 1, "heads": 3}
FAN: dict[str, Any] = {"image_size": 16, "patch_size": 4, "width": 24, "depth": 2, "heads": 3}


def classifier(backbone: nn.Module) -> Classifier:
    return Classifier(backbone, [0.0] * 3, [1.0] * 3)


WANTED = shapes_of(classifier(symvit(10, 3, **SHAPE)))
BARE = [key.removeprefix("backbone.") for key in WANTED if key.startswith("backbone.")]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_names_of_each_layout_are_known(layout: Layout) -> None:
    named = {key: [part.name for part in layout.parts(key)] for key in WANTED}
    assert {key for key, there in named.items() if not there} == (
        {"mean", "std"} if layout.foreign else set()
    )
    theirs = [name for there in named.values() for name in there]
    assert len(set(theirs)) == len(theirs) == len(WANTED) - 2 * layout.foreign
    assert find_layout(theirs, WANTED) == layout


def test_an_extra_tensor_does_not_change_the_layout() -> None:
    assert find_layout([*(f"model.{key}" for key in BARE), "optimizer.step", "epoch"], WANTED).name == "deit"
    assert find_layout(["nothing", "known"], WANTED).name == "assay"


def test_forms_are_offered_to_the_models_that_they_are_of() -> None:
    def forms(backbone: nn.Module) -> set[str]:
        return {layout.form.name for layout in layouts_for(shapes_of(classifier(backbone)))}

    assert forms(vit(5, 3, **SHAPE)) == forms(symvit(5, 3, **SHAPE)) == {""}
    assert forms(fan_vit(5, 3, **FAN)) == {"", "nvidia_fan"}
    assert forms(rpc_fan_vit(5, 3, **FAN)) == {""}, "symmetric attention has no place for their queries"
    assert forms(segmenter(5, 3, backbone=lambda classes, channels: vit(classes, channels, **SHAPE))) == {
        "",
        "segmenter",
    }


def test_the_names_of_layouts_are_unique_and_tell_wrapper_and_form() -> None:
    names = [layout.name for layout in layouts_for(shapes_of(classifier(fan_vit(5, 3, **FAN))))]
    assert len(set(names)) == len(names)
    assert {"timm", "nvidia_fan", "deit/nvidia_fan"} <= set(names)


@pytest.mark.parametrize(
    "architecture", ["vit_tiny_patch16_224", "deit_tiny_patch16_224", "vit_tiny_patch16_384", "test_vit"]
)
def test_timms_and_deits_vision_transformers_answer_as_ours(architecture: str) -> None:
    options = {"num_classes": 7} | ({} if architecture == "test_vit" else {"depth": 3})
    theirs = create_model(architecture, **options).eval()
    disturb(theirs)
    size = theirs.patch_embed.img_size[0]
    ours = vit(
        7,
        3,
        image_size=size,
        width=theirs.embed_dim,
        depth=len(theirs.blocks),
        heads=theirs.blocks[0].attn.num_heads,
        mlp_ratio=theirs.blocks[0].mlp.fc1.out_features / theirs.embed_dim,
    )
    same_logits(ours, theirs, "timm", torch.randn(2, 3, size, size))


@pytest.mark.slow
def test_every_architecture_of_timm_with_our_names_computes_what_ours_does() -> None:
    """Every model that fits by names and shapes, at any size, has timm's plain blocks: no accidental fits."""
    from timm import list_models

    fitting = [name for name in list_models(["vit_*", "deit*", "test_vit*", "flexivit*"]) if fits(name)]
    assert len(fitting) > 20
    for name in fitting:
        with torch.device("meta"):
            theirs = create_model(name, num_classes=7)
        block = theirs.blocks[0]
        assert {type(part).__name__ for part in (block, block.attn, block.mlp.act)} == {
            "Block",
            "Attention",
            "GELU",
        }
        norms = {part.eps for part in theirs.modules() if isinstance(part, nn.LayerNorm)}
        assert (norms, theirs.global_pool, block.attn.scale) == ({1e-6}, "token", block.attn.head_dim**-0.5)


def fits(architecture: str) -> bool:
    """Whether an architecture of timm has the names and shapes of our ViT at some size."""
    with torch.device("meta"):
        theirs = shapes_of(create_model(architecture, num_classes=7))
        if not {"cls_token", "pos_embed", "patch_embed.proj.weight", "blocks.0.mlp.fc1.weight"} <= set(
            theirs
        ):
            return False
        width, patch = theirs["cls_token"][-1], theirs["patch_embed.proj.weight"][-1]
        ours = vit(
            7,
            3,
            image_size=int((theirs["pos_embed"][1] - 1) ** 0.5) * patch,
            patch_size=patch,
            width=width,
            heads=1,
            depth=1 + max(int(name.split(".")[1]) for name in theirs if name.startswith("blocks.")),
            mlp_ratio=theirs["blocks.0.mlp.fc1.weight"][0] / width,
        )
    return shapes_of(ours) == theirs


def same_logits(ours: nn.Module, theirs: nn.Module, layout: str, images: Tensor) -> None:
    """Load the weights of a network as those of a file, and compare answers."""
    assert loaded_from(theirs.state_dict(), classifier(ours)).name == layout
    with torch.no_grad():
        expected = theirs(images)
        given = ours.eval()(images)
    scale = expected.abs().max()
    assert scale > 0.1
    assert (given - expected).abs().max() <= 2e-5 * scale
