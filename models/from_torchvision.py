"""torchvision's image classifiers.

    logits = architecture(x),    x = the normalised pixels

Weights know 1000 classes and three channels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import safetensors.torch
import torch
from torch import Tensor, nn
from torchvision import models
from torchvision.models import WeightsEnum, get_model_builder, get_model_weights, list_models

from assay.models.layers import parameters
from assay.models.layers.checks import did_you_mean
from assay.models.layers.parameters import ImageSize

__all__ = ["torchvision"]

TASKS = ("classification",)
PULLED = "torchvision"
PAPER = "TorchVision maintainers, TorchVision: PyTorch's computer vision library, https://github.com/pytorch/vision"
RULES = (("data.channels == 3", "torchvision's models read images of three channels"),)

WEIGHTS = "model.safetensors"
CHANNELS = 3
# Heads that only training uses: absent from the built model, and from its weights.
AUXILIARY = re.compile(r"(AuxLogits|aux1|aux2)\.")
# Names of old weights, with a dot that the model's no longer have, as torchvision itself mends them.
DENSE_LAYER = re.compile(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)")


def architectures() -> list[str]:
    """The names of all classifiers of torchvision, sorted."""
    return sorted(list_models(module=models))


CHOICES = {"architecture": architectures}


def torchvision(
    classes: parameters.Classes,
    channels: int,
    *,
    architecture: str,
    tag: str | None = None,
    image_size: ImageSize | None = None,
    pretrained: Annotated[Path | None, "system"] = None,
) -> nn.Module:
    """Any image classifier of torchvision, by the name of its architecture.

    The module has `image_size`, in pixels, and `pretrained_cfg`: "mean" and "std" are the normalisation of
    its weights' own transforms, "num_classes" the classes that they know.

    Args:
        channels: channels of the images: three.
        architecture: torchvision's name, such as "resnet50" or "vit_b_16".
        tag: which of torchvision's weights, such as "IMAGENET1K_V1"; its default if absent.
        image_size: height and width of the images in pixels; the weights' own size if absent.
        pretrained: folder of the pulled weights.

    Returns:
        Module from normalised images (B, 3, image_size, image_size) to logits (B, classes).

    Raises:
        ValueError: no such architecture or weights, another number of channels, or an image size that the
            architecture or its weights do not take.
    """
    if channels != CHANNELS:
        raise ValueError(f"torchvision's models read {CHANNELS} channels: the data have {channels}")
    weights = published(architecture, tag)
    transforms = weights.transforms()
    own = int(transforms.crop_size[0])
    size = image_size or own
    smallest = int(min(weights.meta.get("min_size", (1,))))
    if pretrained is not None and size < smallest:
        raise ValueError(f"{weights} need images of at least {smallest} pixels: got image_size {size}")
    model = build(architecture, classes, size, pretrained=pretrained is not None)
    if pretrained is not None:
        if classes != len(weights.meta["categories"]):
            raise ValueError(f"{weights} know {len(weights.meta['categories'])} classes, not {classes}")
        load(model, safetensors.torch.load_file(pretrained / WEIGHTS), architecture)
    vars(model)["image_size"] = size  # nn.Module declares no plain attributes
    vars(model)["pretrained_cfg"] = {
        "mean": tuple(transforms.mean),
        "std": tuple(transforms.std),
        "num_classes": len(weights.meta["categories"]),
    }
    return model


def published(architecture: str, tag: str | None) -> WeightsEnum:
    """torchvision's entry of some weights; the default without a tag.

    Raises:
        ValueError: torchvision does not know the name; the message has the nearest.
    """
    known = architectures()
    if architecture not in known:
        hint = did_you_mean(architecture, known)
        raise ValueError(f"torchvision has no architecture {architecture!r}{hint}")
    entries: Any = get_model_weights(architecture)
    if tag is None:
        tag = entries.DEFAULT.name
    if tag not in entries.__members__:
        tags = list(entries.__members__)
        raise ValueError(
            f"torchvision has no weights {tag!r} for {architecture}{did_you_mean(tag, tags)}"
            f" (there are: {', '.join(tags)})"
        )
    found: WeightsEnum = entries[tag]
    return found


def build(architecture: str, classes: int, image_size: int, *, pretrained: bool) -> nn.Module:
    """A model with random weights, without auxiliary heads; with options that its pulled weights need."""
    builder = get_model_builder(architecture)
    options: dict[str, Any] = {"num_classes": classes}
    if architecture in ("googlenet", "inception_v3"):
        # Their weights are Google's, for pixels in [-1, 1]: the model converts.
        options |= {"aux_logits": False, "transform_input": pretrained, "init_weights": not pretrained}
    if architecture.startswith("vit_"):
        options["image_size"] = image_size
    if architecture.startswith("maxvit"):
        options["input_size"] = (image_size, image_size)
    model: nn.Module = builder(weights=None, **options)
    return model


def load(model: nn.Module, tensors: Mapping[str, Tensor], architecture: str) -> None:
    """Copy weights into a model, every tensor of it and no other.

    Raises:
        ValueError: names or shapes differ.
    """
    given = {
        DENSE_LAYER.sub(r"\1\2", name): tensor
        for name, tensor in tensors.items()
        if AUXILIARY.match(name) is None
    }
    wanted = model.state_dict()
    # Not `load_state_dict`: old files lack counters of batches, and the version that some modules ask for.
    missing = [name for name in wanted if name not in given and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in given if name not in wanted]
    other = [name for name, ours in wanted.items() if name in given and given[name].shape != ours.shape]
    if faults := [*missing, *unexpected, *other]:
        raise ValueError(
            f"the weights do not fit torchvision's {architecture} of this image size: {', '.join(faults[:8])}"
        )
    with torch.no_grad():
        for name, tensor in given.items():
            wanted[name].copy_(tensor)
