"""The protocol of ADE20K under corruptions.

Teo and Nguyen 2024, "Unveiling the Hidden Structure of Self-Attention via Kernel PCA", table 6: the fifteen
corruptions of ImageNet-C on the images of ADE20K's validation set. Every image is corrupted at the file's own
size, then processed as by `sliding_window`; the uncorrupted image is judged, too. Corrupted images are never
stored.

    x' = corruption_c(x, severity s)    at the file's own size
    z(p) = mean over the windows that cover pixel p of their logits there, or of their softmax
    prediction = argmax_k of z_k resized to the file's size, for x and for x' of each c and s

This is not a parameter of `corruptions`: that is to `clean` what this is to `sliding_window`, with the same
parameters for the windows, which classification and whole squares have no use for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Interval, Len
from torch import Tensor

from assay.attacks.corruptions.imaging.constants import Constants
from assay.attacks.corruptions.imaging.corruption import TOP, Corruption
from assay.attacks.kernel import frozen
from assay.attacks.sending import sent
from assay.service.contract.corruption_cells import cells_of
from assay.workers.data.formats.dataset import Levels
from assay.workers.data.formats.prefetch import prefetch
from assay.workers.evaluation.corruptions import COMMON, OF_CHANNELS, CorruptionNames
from assay.workers.evaluation.engine.corruption_kernels import corruption_kernels
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.segmentation.corrupted import CellTally
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts
from assay.workers.evaluation.engine.shard import Shard
from assay.workers.evaluation.sliding_window import PASSES as OF_WINDOWS_PASSES
from assay.workers.evaluation.sliding_window import RULES as OF_WINDOWS
from assay.workers.evaluation.sliding_window import Example, Side, SlidingWindow

__all__ = ["sliding_window_corruptions"]

TASKS = ("segmentation",)
TABLE = "corrupted_segmentation"
PAPER = "Teo and Nguyen 2024, Unveiling the Hidden Structure of Self-Attention via Kernel PCA, table 6"
RULES = (*OF_WINDOWS, OF_CHANNELS)
PASSES = (f"(1 + len(params.corruptions) * len(params.severities)) * ({OF_WINDOWS_PASSES[0]})", "0")


def sliding_window_corruptions(
    *,
    corruptions: CorruptionNames = COMMON,
    severities: Annotated[list[Annotated[int, Interval(ge=1, le=5)]], Len(1, 5)] = [1, 2, 3, 4, 5],  # noqa: B006
    short_side: Side | None = 512,
    window: Side = 512,
    stride: Side = 512,
    average: Literal["logits", "probabilities"] = "logits",
    constants: Constants = "imagenet_c",
) -> CorruptedWindows:
    """Segmentation of corrupted whole images by sliding windows, judged at the label maps' own size.

    An image is corrupted at the file's own size. The windows' defaults are Segmenter's for ADE20K.

    Args:
        corruptions: which; by default the fifteen. What is named twice counts once.
        severities: which, 1 to 5; by default all.
        short_side: short side of an image before windows are cut, in pixels; null takes the file's own.
        window: side of a window, in pixels.
        stride: distance of two windows, in pixels; at most `window`.
        average: what is averaged where windows overlap; the released code takes logits.
        constants: whose constants and steps, as of `corruptions`; at any size of the files.
    """
    kernels = corruption_kernels(cells_of({"corruptions": corruptions, "severities": severities}), constants)
    return CorruptedWindows(kernels, SlidingWindow(short_side, window, stride, average))


@dataclass(frozen=True)
class CorruptedWindows:
    """The evaluation with its parameters; see `sliding_window_corruptions`."""

    kernels: Sequence[Corruption]
    windows: SlidingWindow

    def measure(self, shard: Shard) -> PixelCounts:
        """Segments every image, uncorrupted and under each corruption; a ValueError as `SlidingWindow`."""
        if not shard.ids:
            raise ValueError("there are no images, at least one is needed")
        exact, tally = Passes(shard.classifier, shard.device), CellTally(shard.ids, shard.classes)
        views = 1 + len(self.kernels)
        with torch.no_grad(), frozen(shard.classifier):
            for number, found in enumerate(self.windows.judge(exact, self._views(shard), shard)):
                row, view = divmod(number, views)
                note = tally.note_cell if view else tally.note
                note(torch.tensor([row]), found.prediction[None], found.truth[None], found.windows)
                if view == views - 1:
                    shard.progress(row + 1)
        return tally.counts(exact.limit.noted())

    def _views(self, shard: Shard) -> Iterator[Example]:
        for row, (pixels, truth) in enumerate(prefetch(shard.example, range(len(shard.ids)))):
            # The uncorrupted image is processed exactly as by `sliding_window`.
            yield pixels, truth
            image = Levels(sent(pixels, shard.device)[None], 255).pixels()
            for kernel in self.kernels:
                yield _bytes(kernel(image, [shard.ids[row]], shard.seed)[0]), truth


def _bytes(image: Tensor) -> Tensor:
    return (image * TOP).round().to(torch.uint8)
