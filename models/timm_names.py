"""Registers the models with timm: importing this module makes them available to `timm.create_model`.

    import assay.models.timm_names
    model = timm.create_model("rpc_symvit_tiny_patch16_224", num_classes=10, iterations=6)

There are no pretrained weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import nn

from assay.models import primal_vit, rpc_asymvit, rpc_symvit, symvit
from assay.models.layers.presets import Preset

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

# Primal.+ is what the builder has by default, with which timm begins.
PRIMAL = {"primal_plus_deit_small": primal_vit.PRESETS["primal_plus_deit_small"]}
# timm's name to the published size.
NAMED = {
    f"{name}_patch16_224": preset
    for presets in (symvit.PRESETS, rpc_symvit.PRESETS, rpc_asymvit.PRESETS, PRIMAL)
    for name, preset in presets.items()
}

default_cfgs = generate_default_cfgs(dict.fromkeys(NAMED, PREPROCESSING))


def _from_timm_arguments(builder: Callable[..., nn.Module]) -> Callable[..., nn.Module]:

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


def _register(variant: str, preset: Preset) -> None:

    def create(pretrained: bool = False, **options: Any) -> nn.Module:
        if pretrained:
            raise ValueError(f"{variant} has no pretrained weights: pass pretrained=False")
        builder = _from_timm_arguments(preset.builder)
        # Only the size: timm's users may change it.
        size = {**preset.size, "patch_size": 16}
        model: nn.Module = build_model_with_cfg(builder, variant, pretrained, **{**size, **options})
        return model

    create.__name__ = variant
    create.__doc__ = preset.summary
    register_model(create)


for _variant, _preset in NAMED.items():
    _register(_variant, _preset)

# A name in __all__, where register_model adds it, would be a component of the catalog.
del globals()["__all__"]
