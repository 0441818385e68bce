"""timm's image classifiers.

    logits = architecture(x),    x = the normalised pixels

The network is timm's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from timm import create_model, is_model_pretrained, list_models
from timm.models import get_arch_pretrained_cfgs
from torch import nn

import assay.models.timm_names  # noqa: F401  registers Assay's own models, so that the list below never depends on imports
from assay.models.layers import parameters
from assay.models.layers.checks import did_you_mean
from assay.models.layers.parameters import ImageSize

__all__ = ["timm"]

TASKS = ("classification",)
PULLED = "timm"
PAPER = "Wightman, PyTorch image models, https://github.com/huggingface/pytorch-image-models"

WEIGHTS = "model.safetensors"


def architectures() -> list[str]:
    """The names of all architectures that timm can build, sorted."""
    return sorted(list_models())


CHOICES = {"architecture": architectures}


def timm(
    classes: parameters.Classes,
    channels: int,
    *,
    architecture: str,
    tag: str | None = None,
    image_size: ImageSize | None = None,
    pretrained: Annotated[Path | None, "system"] = None,
) -> nn.Module:
    """Any image classifier of timm, by the name of its architecture.

    The module keeps timm's `pretrained_cfg`: "mean" and "std" are its weights' normalisation, "num_classes"
    the classes that they know (the head is random where `classes` is another number). It has `image_size`, in
    pixels.

    Args:
        channels: channels of the images; timm adapts the first layer of pretrained weights.
        architecture: timm's name without a tag, such as "vit_tiny_patch16_224".
        tag: which of timm's pretrained weights, such as "augreg_in21k_ft_in1k"; timm's first if absent.
        image_size: height and width of the images in pixels; the architecture's own if absent.
        pretrained: folder of the pulled weights; its `model.safetensors` is loaded as timm loads a file.

    Returns:
        Module from normalised images (B, channels, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: no such architecture, tag or pretrained weights, or an image size that it cannot take.
    """
    name = _full_name(architecture, tag)
    if pretrained is not None and not is_model_pretrained(name):
        raise ValueError(f"timm has no pretrained weights for {name!r}")
    options: dict[str, Any] = {"num_classes": classes, "in_chans": channels}
    if pretrained is not None:
        # What timm would download, read by timm's own code. `custom_load` reads arrays of JAX; the hub, and
        # so the pulled file, has tensors.
        file = {"file": str(pretrained / WEIGHTS), "custom_load": False}
        options |= {"pretrained": True, "pretrained_cfg_overlay": file}
    model = _create(name, options, image_size)
    vars(model)["image_size"] = image_size or _own_size(name, model)  # nn.Module declares no plain attributes
    return model


def _full_name(architecture: str, tag: str | None) -> str:
    known = architectures()
    if architecture not in known:
        raise ValueError(f"timm has no architecture {architecture!r}{did_you_mean(architecture, known)}")
    if tag is None:
        return architecture
    tags = sorted(name.partition(".")[2] for name in get_arch_pretrained_cfgs(architecture))
    if tag not in tags:
        hint, known_tags = did_you_mean(tag, tags), ", ".join(tags) or "none"
        raise ValueError(f"timm has no weights {tag!r} for {architecture}{hint} (there are: {known_tags})")
    return f"{architecture}.{tag}"


def _create(name: str, options: dict[str, Any], image_size: int | None) -> nn.Module:
    if image_size is None:
        return create_model(name, **options)
    try:
        return create_model(name, **options, img_size=image_size)
    except TypeError as error:  # the answer of timm's convolutional networks, which take any size
        if "img_size" not in str(error):
            raise
    model = create_model(name, **options)
    _check_size(name, _config(model), image_size)
    return model


def _config(model: nn.Module) -> dict[str, Any]:
    config: dict[str, Any] = model.pretrained_cfg  # type: ignore[assignment]
    return config


def _own_size(name: str, model: nn.Module) -> int:
    height, width = _config(model)["input_size"][-2:]
    if height != width:
        raise ValueError(f"{name} takes images of {height} x {width} pixels: give a square image_size")
    return int(height)


def _check_size(name: str, config: dict[str, Any], image_size: int) -> None:
    own, smallest = config["input_size"][-1], (config.get("min_input_size") or (1,))[-1]
    if config.get("fixed_input_size") and image_size != own:
        raise ValueError(f"{name} takes images of {own} pixels only: got image_size {image_size}")
    if image_size < smallest:
        raise ValueError(f"{name} needs images of at least {smallest} pixels: got image_size {image_size}")
