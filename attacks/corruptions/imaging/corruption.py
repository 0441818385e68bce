"""Corruption: a kernel on batches of byte images, and the random draws of each example.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations" (ImageNet-C). Images are bytes before and after a corruption: an image in [0, 1] is rounded to
the nearest of the levels 0 to 255, corrupted, clipped, and truncated (not rounded) to a level, as by
`numpy.uint8` in the released code.

n = images of a chunk, C = channels (1 or 3), H x W = size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import at as at
from assay.attacks.randomness import Randomness, Source

Severity = Annotated[int, Interval(ge=1, le=5)]
Draws = tuple[Tensor, ...]

IMAGENET_C = (
    "Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions and"
    " Perturbations"
)
TOP = 255
# Pixels of an image processed at a time: on a CPU few enough for a core's cache; on a GPU enough to fill it.
# Results do not depend on it.
CHUNK_PIXELS = {"cpu": 2**16, "cuda": 2**22}
# Added before truncation where float32 may fall just below an exact whole level.
SLACK = 2**-11


def no_draws(source: Source, channels: int, height: int, width: int) -> Draws:
    """Draws of a deterministic corruption: none."""
    del source, channels, height, width
    return ()


@dataclass(frozen=True)
class Corruption:
    """One corruption at one severity."""

    name: str  # in the catalog
    severity: int  # 1 to 5
    apply: Callable[..., Tensor]  # levels (n, C, H, W), whole numbers in float32, and stacked draws to levels
    draw: Callable[[Source, int, int, int], Draws] = no_draws  # all random draws of images (n, C, H, W)
    files: Callable[[], str] | None = None  # the hash of the files that it reads, which numbers depend on
    variant: str = ""  # which of its sets of files, where it has several

    def __call__(self, images: Tensor, ids: Sequence[str], seed: int) -> Tensor:
        """Corrupts images (B, C, H, W) in [0, 1], of any floating dtype, with one or three channels.

        The result for an example depends only on the seed, the corruption, the severity and its id (except
        float rounding, which may move a value by one level).
        """
        _check(images, ids)
        corrupted = torch.empty_like(images)
        _, _, height, width = images.shape
        size = max(1, CHUNK_PIXELS["cpu" if images.device.type == "cpu" else "cuda"] // (height * width))
        with torch.no_grad():
            for start in range(0, len(images), size):
                part = slice(start, start + size)
                levels = (images[part] * TOP).round_().clamp_(0, TOP).to(torch.float32)
                draws = self.draws(ids[part], levels.shape[1:], seed, levels.device)
                divided(self.apply(levels, *draws).to(images.dtype), TOP, out=corrupted[part])
        return corrupted

    def draws(
        self, ids: Sequence[str], shape: Sequence[int], seed: int, device: torch.device | None = None
    ) -> Draws:
        """Draws of examples of equal shape (C, H, W), a row per example; alike on every device."""
        randomness = Randomness(seed, f"corruption {self.name}")
        return self.draw(Source(randomness, ids, self.severity, device or torch.device("cpu")), *shape)


def cut(values: Tensor, slack: float = 0.0) -> Tensor:
    """Clips values to 0..255 and truncates them to whole levels, in place."""
    return (values.add_(slack) if slack else values).clamp_(0, TOP).floor_()


def divided(values: Tensor, by: float, out: Tensor | None = None) -> Tensor:
    """Values divided by a number, to the last bit alike on every device; into `out` where it is given.

    CUDA multiplies by the reciprocal of a plain number: a whole level may end one bit lower, and be cut.
    """
    return torch.div(values, values.new_full((), by), out=out)


def luminance(levels: Tensor) -> Tensor:
    """Luminance (n, 1, H, W) of colours (n, 3, H, W) by ITU-R BT.601; grey images unchanged."""
    if levels.shape[1] == 1:
        return levels
    red, green, blue = levels.unbind(1)
    return (0.299 * red + 0.587 * green + 0.114 * blue)[:, None]


def _check(images: Tensor, ids: Sequence[str]) -> None:
    if images.dim() != 4 or images.shape[1] not in (1, 3) or not images.is_floating_point():
        raise ValueError(
            f"images are {images.dtype} of shape {tuple(images.shape)};"
            " they must be floating point of shape (B, C, H, W) with 1 or 3 channels"
        )
    if len(ids) != len(images):
        raise ValueError(f"there are {len(ids)} ids for {len(images)} images; each image needs one")
