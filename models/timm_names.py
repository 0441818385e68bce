"""Registers the models with timm: importing this module is enough for `timm.create_model` to know them.

    import assay.models.timm_names
    model = timm.create_model("rpc_symvit_tiny_patch16_224", num_classes=10, iterations=6)

timm's usual arguments (num_classes, in_chans, img_size, drop_rate, drop_path_rate) and the parameters of the
catalog's builder are understood. There are no pretrained weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn

from assay.models.rpc_asymvit import rpc_asymvit
from assay.models.rpc_symvit import rpc_symvit
from assay.models.symvit import symvit

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

PREPROCESSING = {
    "num_classes": 1000,
    "input_size": (3, 224, 224),
    "fixed_input_size": True,
    "crop_pct": 224 / 256,
    "interpolation": "bicubic",
    "mean": IMAGENET_MEAN,
    "std": IMAGENET_STD,
    "first_conv": "patch_embed.proj",
    "classifier": "head",
}

default_cfgs = generate_default_cfgs(
    {
        "symvit_tiny_patch16_224": PREPROCESSING,
        "symvit_base_patch16_224": PREPROCESSING,
        "rpc_symvit_tiny_patch16_224": PREPROCESSING,
        "rpc_symvit_base_patch16_224": PREPROCESSING,
        "rpc_asymvit_tiny_patch16_224": PREPROCESSING,
        "rpc_asymvit_base_patch16_224": PREPROCESSING,
    }
)


def _from_timm_arguments(builder: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Give a builder timm's argument names."""

    def build(
        *,
        num_classes: int = 1000,
        in_chans: int = 3,
        img_size: int | Sequence[int] = 224,
        drop_rate: float = 0.0,
        drop_path_rate: float = 0.1,
        **parameters: Any,
    ) -> nn.Module:
        sides = {img_size} if isinstance(img_size, int) else set(img_size)
        if len(sides) != 1:
            raise ValueError(f"img_size must be square: got {img_size}")
        return builder(
            num_classes,
            in_chans,
            image_size=sides.pop(),
            dropout=drop_rate,
            drop_path=drop_path_rate,
            **parameters,
        )

    return build


TINY = {"width": 192, "depth": 12, "heads": 3, "patch_size": 16}
BASE = {"width": 768, "depth": 12, "heads": 12, "patch_size": 16}


def _create(builder: Callable[..., nn.Module], variant: str, pretrained: bool, **options: Any) -> nn.Module:
    if pretrained:
        raise ValueError(f"{variant} has no pretrained weights: pass pretrained=False")
    model: nn.Module = build_model_with_cfg(_from_timm_arguments(builder), variant, pretrained, **options)
    return model


@register_model
def symvit_tiny_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """SymViT-tiny at 224 pixels."""
    return _create(symvit, "symvit_tiny_patch16_224", pretrained, **{**TINY, **options})


@register_model
def symvit_base_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """SymViT-base at 224 pixels."""
    return _create(symvit, "symvit_base_patch16_224", pretrained, **{**BASE, **options})


@register_model
def rpc_symvit_tiny_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """RPC-SymViT-tiny at 224 pixels, by default with four iterations in the first layer."""
    return _create(rpc_symvit, "rpc_symvit_tiny_patch16_224", pretrained, **{**TINY, **options})


@register_model
def rpc_symvit_base_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """RPC-SymViT-base at 224 pixels, by default with four iterations in the first layer."""
    return _create(rpc_symvit, "rpc_symvit_base_patch16_224", pretrained, **{**BASE, **options})


@register_model
def rpc_asymvit_tiny_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """RPC-AsymViT-tiny at 224 pixels, by default with four asymmetric iterations in the first layer."""
    return _create(rpc_asymvit, "rpc_asymvit_tiny_patch16_224", pretrained, **{**TINY, **options})


@register_model
def rpc_asymvit_base_patch16_224(pretrained: bool = False, **options: Any) -> nn.Module:
    """RPC-AsymViT-base at 224 pixels, by default with four asymmetric iterations in the first layer."""
    return _create(rpc_asymvit, "rpc_asymvit_base_patch16_224", pretrained, **{**BASE, **options})


# register_model has added every name to __all__, and a name in __all__ would be a component of the catalog.
del globals()["__all__"]
