"""The protocol of Segmenter on ADE20K.

Strudel et al., "Segmenter: Transformer for Semantic Segmentation", ICCV 2021, section 4.1, and its released
inference at one scale. The short side of an image becomes `short_side`; square windows are cut every `stride`
pixels, the last one of each row and column flush with the edge; the logits of windows that overlap are
averaged, resized to the label map's own size (bilinear, half-pixel centres), and every pixel of the file is
judged. An image that is smaller than a window is enlarged until its short side is one.

    z(p) = mean over the windows that cover pixel p of their logits there, or of their softmax
    prediction = argmax_k of z_k resized to H x W
    mIoU = mean_k I_k / (T_k + P_k - I_k)    over the classes k that occur, of the pixels of all images
    T_k, P_k, I_k = pixels with the label k, with the prediction k, with both

Legend: K classes, h and w height and width of the resized image, H and W of the file, S side of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Literal, NamedTuple

import torch
from annotated_types import Interval
from torch import Tensor
from torch.nn.functional import interpolate

from assay.attacks.kernel import frozen
from assay.attacks.sending import sent
from assay.workers.data.formats.images.rescaling import rescale_pixels, size_with_short_side
from assay.workers.data.formats.prefetch import prefetch
from assay.workers.evaluation.engine.arriving import Arriving
from assay.workers.evaluation.engine.forward import Passes
from assay.workers.evaluation.engine.segmentation.pixel_counts import PixelCounts, Tally
from assay.workers.evaluation.engine.shard import Shard

__all__ = ["sliding_window"]

TASKS = ("segmentation",)
TABLE = "segmentation"
PAPER = "Strudel et al., Segmenter: Transformer for Semantic Segmentation, ICCV 2021"
RULES = (
    ("params.stride <= params.window", "stride must not be larger than window: pixels would be left out"),
    (
        "part.backbone_attention != 'scaled_learned' or params.window <= part.backbone_image_size",
        "window must not be larger than the backbone's image_size: its learned S is for that many patches",
    ),
    (
        "not model.fixed_image_size or params.window == model.image_size",
        "window must be the image size of the exported program, which takes no other",
    ),
)

# Windows of an image that is four times as long as wide; other photographs have fewer. Of files at their own
# size nothing is known.
_ALONG = "(max({side}, params.window) - params.window + params.stride - 1) // params.stride + 1"
PASSES = (
    f"({_ALONG.format(side='params.short_side')}) * ({_ALONG.format(side='4 * params.short_side')})",
    "0",
)

Side = Annotated[int, Interval(ge=1, le=4096)]
Example = tuple[Tensor, Tensor]
"""An image of a file, uint8 (C, H, W), and its label map: classes or IGNORE, uint8 (H, W)."""

# Classes resized at a time: all of them at the size of a large file would fill the memory.
RESIZED_CLASSES = 16


def sliding_window(
    *,
    short_side: Side | None = 512,
    window: Side = 512,
    stride: Side = 512,
    average: Literal["logits", "probabilities"] = "logits",
) -> SlidingWindow:
    """Segmentation of whole images by sliding windows, judged at the label maps' own size.

    The defaults are Segmenter's for ADE20K.

    Args:
        short_side: short side of an image before windows are cut, in pixels; null takes the file's own.
        window: side of a window, in pixels.
        stride: distance of two windows, in pixels; at most `window`.
        average: what is averaged where windows overlap; the released code takes logits.
    """
    return SlidingWindow(short_side, window, stride, average)


@dataclass(frozen=True)
class SlidingWindow:
    """The evaluation with its parameters; see `sliding_window`."""

    short_side: int | None
    window: int
    stride: int
    average: str

    def measure(self, shard: Shard) -> PixelCounts:
        """Segments every image; `together` windows a batch. ValueError: no images, or another shape."""
        if not shard.ids:
            raise ValueError("there are no images, at least one is needed")
        exact = Passes(shard.classifier, shard.device)
        tally = Tally(shard.ids, shard.classes)
        with torch.no_grad(), frozen(shard.classifier):
            examples = prefetch(shard.example, range(len(shard.ids)))
            for done, found in enumerate(self.judge(exact, examples, shard), start=1):
                row = torch.tensor([done - 1])
                tally.note(row, found.prediction[None], found.truth[None], found.windows)
                shard.progress(done)
        return tally.counts(exact.limit.noted())

    def judge(self, exact: Passes, examples: Iterable[Example], shard: Shard) -> Iterator[JudgedImage]:
        """The class of every pixel of each example, in order; few examples are held at a time.

        `exact` runs the model without autocast; its parameters are frozen, and nothing records gradients.
        Images are on any device, their label maps on the CPU. Logits of another shape are a ValueError.
        An accelerator is given the next batch of windows before the host reads the answers to the last one.
        """
        forward = exact.in_bfloat16() if shard.dtype == "bfloat16" else exact
        precision = torch.float64 if shard.dtype == "float64" else torch.float32
        pieces = self._pieces(examples, shard.device, precision, shard.classes)
        under_way: list[_Answer] = []
        for answers in self._painted(pieces, forward, self.together(shard.batch_size, shard.image_size)):
            yield from (answer.read() for answer in under_way)
            under_way = answers
        yield from (answer.read() for answer in under_way)

    def together(self, batch_size: int, image_size: int) -> int:
        """Windows of a pass: at most the pixels of so many images of this side, but at least one window."""
        return max(1, batch_size * image_size**2 // self.window**2)

    def size_of(self, height: int, width: int) -> tuple[int, int]:
        """The size at which windows are cut out of a file of (H, W): no side is shorter than a window."""
        size = size_with_short_side(height, width, self.short_side or min(height, width))
        if min(size) >= self.window:
            return size
        enlarged = self.window / min(size)
        return max(self.window, int(size[0] * enlarged)), max(self.window, int(size[1] * enlarged))

    def anchors(self, length: int) -> list[int]:
        """Starts of windows along a side of `length` pixels, at least a window's."""
        last = length - self.window
        return [*range(0, last, self.stride), last]

    def _pieces(
        self, examples: Iterable[Example], device: torch.device, precision: torch.dtype, classes: int
    ) -> Iterator[tuple[_Canvas, int, int, Tensor]]:
        """Every window of every image in order: its canvas, its top and left, and its pixels."""
        for pixels, truth in examples:
            size = self.size_of(*truth.shape)
            unscaled = sent(pixels, device) if pixels.shape[-2:] == size else pixels
            image = sent(rescale_pixels(unscaled, size), device).to(precision)  # (C, h, w)
            corners = [(top, left) for top in self.anchors(size[0]) for left in self.anchors(size[1])]
            canvas = _Canvas(truth, size, classes, len(corners), image)
            for top, left in corners:
                yield canvas, top, left, image[:, top : top + self.window, left : left + self.window]

    def _painted(
        self,
        pieces: Iterator[tuple[_Canvas, int, int, Tensor]],
        forward: Callable[[Tensor], Tensor],
        together: int,
    ) -> Iterator[list[_Answer]]:
        while batch := list(islice(pieces, together)):
            logits = forward(torch.stack([pixels for *_, pixels in batch]))  # (B, K, S, S)
            wanted = (len(batch), batch[0][0].classes, self.window, self.window)
            if logits.shape != wanted:
                raise ValueError(f"the model must give logits {wanted}, it gave {tuple(logits.shape)}")
            scores = logits.softmax(dim=1) if self.average == "probabilities" else logits
            answers = []
            for (canvas, top, left, _), painted in zip(batch, scores, strict=True):
                # At once, so that a single canvas has scores.
                if canvas.add(painted, top, left):
                    answers.append(canvas.judged(RESIZED_CLASSES))
            yield answers


class JudgedImage(NamedTuple):
    """The model's answer to one image."""

    # The class of every pixel of the file, int64 (H, W) on the CPU; K where a score is not finite
    prediction: Tensor
    truth: Tensor  # its label map, uint8 (H, W)
    windows: int  # their number


class _Answer:
    """The answer to one image while it is on its way to the host.

    `found`: the class of every pixel, K where a score is not finite, int64 (H, W) on any device.
    """

    def __init__(self, found: Tensor, truth: Tensor, windows: int) -> None:
        self._truth, self._windows = truth, windows
        self._found = Arriving({"found": found})

    def read(self) -> JudgedImage:
        """The answer, once it has arrived."""
        found = self._found.read()["found"]
        return JudgedImage(found, self._truth, self._windows)


class _Canvas:
    """Accumulates the windows, so many in total, of an image of `size` (h, w).

    `truth` is its label map, uint8 (H, W); `like` a tensor of the type and on the device of the logits.
    """

    def __init__(
        self, truth: Tensor, size: tuple[int, int], classes: int, windows: int, like: Tensor
    ) -> None:
        self.truth = truth
        self.classes = classes
        self.windows = windows
        self._size = size
        self._like = like
        self._left = windows
        # Made with the first window, so that images that wait for theirs take no memory.
        self._scores: Tensor | None = None
        self._times: Tensor | None = None

    def add(self, scores: Tensor, top: int, left: int) -> bool:
        """Add the scores of a window, (K, S, S), at its place; returns whether it was the last."""
        if self._scores is None or self._times is None:
            self._scores = self._like.new_zeros((self.classes, *self._size))
            self._times = self._like.new_zeros(self._size)
        place = (slice(top, top + scores.shape[1]), slice(left, left + scores.shape[2]))
        self._scores[:, *place] += scores
        self._times[place] += 1
        self._left -= 1
        return self._left == 0

    def judged(self, at_a_time: int) -> _Answer:
        """The class of every pixel, once all windows are there; so many classes are resized together."""
        assert self._scores is not None
        assert self._times is not None
        mean = self._scores.div_(self._times)  # (K, h, w)
        height, width = self.truth.shape
        best = mean.new_full((height, width), -torch.inf)
        worst = mean.new_full((height, width), torch.inf)
        prediction = torch.zeros((height, width), dtype=torch.int64, device=mean.device)
        for first in range(0, self.classes, at_a_time):
            part = mean[None, first : first + at_a_time]
            resized = interpolate(part, size=(height, width), mode="bilinear", align_corners=False)[0]
            highest, where = resized.max(dim=0)  # (H, W)
            # Strictly: of equal scores the first class counts, as in a single argmax.
            prediction = torch.where(highest > best, where + first, prediction)
            # What is not a number goes through both.
            best, worst = torch.maximum(best, highest), torch.minimum(worst, resized.amin(dim=0))
        finite = best.isfinite() & worst.isfinite()
        self._scores = self._times = None
        found = prediction.masked_fill(~finite, self.classes)
        return _Answer(found, self.truth, self.windows)
