"""The preprocessing of a Hugging Face image classifier, from its preprocessor_config.json, with gradients.

    resize      shortest_edge: the short side becomes that long, and the image keeps its shape; or height and
                width; by the filter `resample` (`models/layers/image_resizing.py`)
    centre crop to crop_size
    z = (255 rescale_factor x - image_mean) / image_std    for pixels x in [0, 1]

`Classifier` normalises first: resizing and cropping commute with it. Values beyond [0, 1], which bicubic
filters make at edges, are clipped as 8-bit pixels are.

Each image size is checked once against the model's own processor: where they differ by more than 8-bit
rounding, the model is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.models.layers.huggingface.folder import json_of, transformers
from assay.models.layers.image_resizing import RESAMPLING, resize_images

CONFIG = "preprocessor_config.json"
# Of 255: mean and largest difference between the processor's pixels and these. Two roundings to 8 bits, the
# first's error through a filter, give 0.5 on average and 2 at most.
MEAN_DIFFERENCE, MOST_DIFFERENCE = 1.0, 4.0
UNCHANGED = (0.0, 1.0)
# transformers' ViTImageProcessor's, for files that state none.
DEFAULTS = {"image_mean": 0.5, "image_std": 0.5}
# ConvNeXt's processor crops a share `crop_pct` of images below this size, and squashes larger ones.
LARGE_CONVNEXT = 384


class Normalization(NamedTuple):
    """Mean and standard deviation of each channel, of pixels in [0, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


class ImageProcessing(nn.Module):
    """Resizing and centre crop of normalised images. A ValueError: no configuration, or an unknown step."""

    low: Tensor
    high: Tensor

    def __init__(self, folder: Path, channels: int) -> None:
        super().__init__()
        self._folder = folder
        self._given = given = json_of(folder, CONFIG)
        if given.get("do_pad") or given.get("do_flip_channel_order"):
            step = "do_pad" if given.get("do_pad") else "do_flip_channel_order"
            raise ValueError(f"{folder / CONFIG} asks for {step}, which is not supported")
        self.normalization = _normalization(given, channels)
        number = given.get("resample", 2)
        if given.get("do_resize", True) and number not in RESAMPLING:
            raise ValueError(f"{folder / CONFIG} has resample {number!r}; allowed: {sorted(RESAMPLING)}")
        self._resample = RESAMPLING[number] if given.get("do_resize", True) else ""
        self._checked: set[int] = set()
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in self.normalization)
        for name, edge in zip(("low", "high"), UNCHANGED, strict=True):
            self.register_buffer(name, (edge - mean) / std, persistent=False)

    def read_size(self) -> tuple[int, int]:
        """Height and width that the model reads, of any images. Raises ValueError: nothing resizes."""
        if not self._resample:
            raise ValueError(
                f"{self._folder / CONFIG} resizes nothing: give the model's parameter image_size"
            )
        return self._cropped(self._resized())

    def forward(self, images: Tensor) -> Tensor:
        """What the model reads of normalised (B, C, S, S). ValueError: as `check`, or the crop is larger."""
        self.check(images.shape[-1])
        return self._processed(images)

    def _processed(self, images: Tensor) -> Tensor:
        side = images.shape[-1]
        if self._resample and self._resized() != (side, side):
            images = resize_images(images, self._resized(), self._resample, (self.low, self.high))
        height, width = self._cropped((images.shape[-2], images.shape[-1]))
        top, left = (
            round((have - want) / 2) for have, want in zip(images.shape[-2:], (height, width), strict=True)
        )
        return images[..., top : top + height, left : left + width]

    def _resized(self) -> tuple[int, int]:
        size = self._given.get("size", {})
        if isinstance(size, int):
            size = {"height": size, "width": size}
        if "shortest_edge" in size:
            edge = int(size["shortest_edge"])
            if (part := self._given.get("crop_pct")) is not None and edge < LARGE_CONVNEXT:
                edge = int(edge / part)
            return edge, edge
        if not {"height", "width"} <= set(size):
            raise ValueError(
                f"{self._folder / CONFIG} has the size {size!r}: height and width, or shortest_edge"
            )
        return int(size["height"]), int(size["width"])

    def _cropped(self, size: tuple[int, int]) -> tuple[int, int]:
        given = self._given
        if not given.get("do_center_crop", False):
            if given.get("crop_pct") is not None and isinstance(given.get("size"), Mapping):
                edge = given["size"].get("shortest_edge")
                if edge is not None and edge < LARGE_CONVNEXT:
                    return int(edge), int(edge)
            return size
        crop = given.get("crop_size", {})
        if isinstance(crop, int):
            crop = {"height": crop, "width": crop}
        if not {"height", "width"} <= set(crop):
            raise ValueError(
                f"{self._folder / CONFIG} has the crop_size {crop!r}: height and width are wanted"
            )
        wanted = int(crop["height"]), int(crop["width"])
        if wanted[0] > size[0] or wanted[1] > size[1]:
            raise ValueError(
                f"{self._folder / CONFIG} crops {wanted[0]} x {wanted[1]} pixels out of {size[0]} x"
                f" {size[1]}: give the model's parameter image_size a larger value"
            )
        return wanted

    def check(self, side: int) -> None:
        """Compare with the model's processor, once per size. Raises ValueError: other pixels."""
        if side not in self._checked:
            self._compare(side)
            self._checked.add(side)

    @torch.no_grad()
    def _compare(self, side: int) -> None:
        library = transformers()
        try:
            processor = library.AutoImageProcessor.from_pretrained(
                self._folder, local_files_only=True, trust_remote_code=False
            )
        except (OSError, ValueError, KeyError, ImportError, TypeError) as error:
            message = str(error).strip().partition("\n")[0]
            raise ValueError(f"{self._folder / CONFIG} cannot be used: {message}") from error
        mean, std = (
            torch.tensor(values, dtype=torch.float64).view(1, -1, 1, 1) for values in self.normalization
        )
        pixels = _patterns(side, mean.shape[1])  # (2, C, S, S), 8 bits
        images = [np.ascontiguousarray(one.permute(1, 2, 0).numpy()) for one in pixels]
        theirs = processor(images, return_tensors="pt", input_data_format="channels_last")[
            "pixel_values"
        ].double()
        ours = self._processed((pixels.double() / 255 - mean) / std)
        if ours.shape != theirs.shape:
            raise ValueError(
                f"{self._folder / CONFIG}: the processor makes {tuple(theirs.shape[-2:])} pixels of images of"
                f" {side} x {side}, this model {tuple(ours.shape[-2:])}: it has steps that are not supported"
            )
        difference = ((ours - theirs).abs() * std * 255).amax(dim=(0, 1))
        if float(difference.mean()) > MEAN_DIFFERENCE or float(difference.max()) > MOST_DIFFERENCE:
            raise ValueError(
                f"{self._folder / CONFIG}: the processor's pixels differ from this model's by"
                f" {float(difference.mean()):.1f} of 255 on average and {float(difference.max()):.1f} at"
                " most, more than rounding: it has steps that are not supported"
            )


def _normalization(given: Mapping[str, Any], channels: int) -> Normalization:
    """Mean and standard deviation of pixels in [0, 1] before the processor's rescaling and normalising."""
    factor = 255 * float(given.get("rescale_factor", 1 / 255)) if given.get("do_rescale", True) else 255.0
    mean, std = [0.0] * channels, [1.0] * channels
    if given.get("do_normalize", True):
        mean, std = (_per_channel(given.get(name, default), channels) for name, default in DEFAULTS.items())
    return Normalization(tuple(m / factor for m in mean), tuple(s / factor for s in std))


def _per_channel(value: float | Sequence[float], channels: int) -> list[float]:
    values = [float(value)] * channels if isinstance(value, int | float) else [float(one) for one in value]
    if len(values) != channels:
        raise ValueError(f"{CONFIG} normalises {len(values)} channels, the data set has {channels}")
    return values


def _patterns(side: int, channels: int) -> Tensor:
    """Two images of 8 bits, uint8 (2, C, S, S): waves, and noise smoothed a little."""
    places = torch.arange(side, dtype=torch.float64) / side
    waves = torch.stack(
        [(6.0 * (places[:, None] + (1 + c) * places[None, :])).sin() for c in range(channels)]
    )  # (C, S, S)
    noise = torch.rand(channels, side, side, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = functional.avg_pool2d(noise[None], 3, stride=1, padding=1)[0]
    scaled = torch.stack([(waves + 1) / 2, noise])
    return (scaled * 255).round().to(torch.uint8)
