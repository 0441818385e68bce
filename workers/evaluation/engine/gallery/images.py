"""Gallery items with images: 8-bit PNG files, base64. C channels, H height, W width, K classes."""

from __future__ import annotations

import base64
import colorsys
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from PIL import Image
from torch import Tensor

from assay.attacks.threat import Ball
from assay.models.layers.layers import Classifier
from assay.service.contract.gallery import GalleryImage, GalleryMaps, max_items
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.evaluation.engine.gallery.candidates import MAP_RANKS, Candidates, finite
from assay.workers.evaluation.engine.ledger import ExampleOutcomes

Value = TypeVar("Value")

GREY = 0.5
COLOURED = 3
# Of zlib: 224 x 224 pixels take half the time of the default, for a tenth more bytes.
COMPRESSION = 3
# Values outside [0, 1] by less are rounding of a normalisation and its inverse.
ROUNDING = 1e-3
# The first classes; readers with any kind of colour vision tell them apart (Okabe and Ito 2008).
OKABE_ITO = (
    (0, 0, 0),
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
)
# Turn between the hues of consecutive classes: neighbours differ.
GOLDEN = 0.618033988749895


@dataclass(frozen=True)
class PixelSpace:
    """Maps images of the attacked space to pixels."""

    mean: Tensor  # of each channel, (C, 1, 1)
    std: Tensor  # of each channel, (C, 1, 1)

    @classmethod
    def of(cls, classifier: Classifier, *, normalised: bool) -> PixelSpace:
        """That of a classifier: normalised images under the protocol `paper`, else pixels."""
        mean, std = (values.detach().float().cpu()[0] for values in (classifier.mean, classifier.std))
        return cls(mean, std) if normalised else cls(torch.zeros_like(mean), torch.ones_like(std))

    def pixels(self, image: Tensor) -> Tensor:
        """Pixels of an image (C, H, W), unclipped, float32."""
        return image.float() * self.std + self.mean


def attacked_images(
    candidates: Candidates, outcomes: ExampleOutcomes, space: PixelSpace, ball: Ball | None
) -> list[GalleryImage]:
    """Items of an attack on images of a `space`; `ball`: allowed perturbations, None without a bound."""
    items = []
    for rank, kept in candidates.chosen(max_items(candidates.pixels)):
        clean, changed = space.pixels(kept.clean), space.pixels(kept.changed)
        factor = amplification(changed - clean, ball, float(space.std.max()))
        items.append(
            GalleryImage(
                id=outcomes.ids[kept.row],
                rank=rank,
                succeeded=kept.broken,
                label=int(outcomes.labels[kept.row]),
                before=kept.before,
                after=kept.after,
                width=clean.shape[2],
                height=clean.shape[1],
                clean=png(clean),
                changed=png(changed),
                difference=png(GREY + factor * (changed - clean)),
                factor=factor,
                linf=None if outcomes.linf is None else finite(float(outcomes.linf[kept.row])),
                l2=None if outcomes.l2 is None else finite(float(outcomes.l2[kept.row])),
                clamped=outside(changed),
            )
        )
    return items


def amplification(difference: Tensor, ball: Ball | None, scale: float = 1.0) -> float:
    """Factor by which a difference (C, H, W) in pixels is shown: the largest change is black or white.

    An Linf `ball` gives all images of an attack the same factor; None, or another norm, each its own. `scale`
    is in pixels per unit of the ball's epsilon.
    """
    fixed = ball is not None and ball.norm == "Linf" and ball.epsilon > 0
    largest = ball.epsilon * scale if fixed and ball is not None else float(difference.abs().max())
    return GREY / largest if 0 < largest < torch.inf else 1.0


def outside(pixels: Tensor) -> bool:
    """Whether values are outside [0, 1] by more than rounding."""
    return not bool(((pixels >= -ROUNDING) & (pixels <= 1 + ROUNDING)).all())


def png(pixels: Tensor) -> str:
    """An image (C, H, W), clamped to [0, 1], in grey or colour; other numbers of channels as their mean."""
    shown = pixels.float().nan_to_num(0.0).clamp(0, 1)
    if len(shown) not in (1, COLOURED):
        shown = shown.mean(0, keepdim=True)
    values = (shown * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    return _encoded(Image.fromarray(values if values.shape[2] == COLOURED else values[:, :, 0]))


def map_png(classes: Tensor) -> str:
    """A map of classes in [0, 255), or 255 for none, (H, W), with the colours of `colour`."""
    image = Image.fromarray(classes.to(torch.uint8).numpy())
    image.putpalette([channel for index in range(256) for channel in colour(index)])
    return _encoded(image)


def colour(index: int) -> tuple[int, int, int]:
    """Colour of a class in maps, 8 bits per channel; grey for 255, which is no class."""
    if index == IGNORE:
        return (128, 128, 128)
    if index < len(OKABE_ITO):
        return OKABE_ITO[index]
    lightness = (0.35, 0.55, 0.75)[index % 3]
    red, green, blue = colorsys.hls_to_rgb((index * GOLDEN) % 1.0, lightness, 0.75)
    return round(255 * red), round(255 * green), round(255 * blue)


def _encoded(image: Image.Image) -> str:
    file = io.BytesIO()
    image.save(file, "PNG", compress_level=COMPRESSION)
    return base64.b64encode(file.getvalue()).decode("ascii")


class MapCandidates:
    """Keeps what a gallery needs of an attack on a segmentation model: every image of a few low ranks."""

    def __init__(self, ranks: Mapping[int, int]) -> None:
        self.ranks = {row: rank for row, rank in ranks.items() if rank < MAP_RANKS}
        self.before: dict[int, Tensor] = {}
        self.after: dict[int, tuple[Tensor, Tensor]] = {}

    def note_clean(self, rows: Tensor, predictions: Tensor) -> None:
        """Records the predictions for unchanged images, int64 (B, H, W) on the CPU."""
        for row, prediction in self._wanted(rows, predictions):
            self.before[row] = prediction.clone()

    def note(self, rows: Tensor, lowest: Tensor, images: Tensor, predictions: Tensor) -> None:
        """Records images with fewer right pixels than any before.

        `lowest`: which of them have, bool (B,); `images`: (B, C, H, W); `predictions`: theirs, int64 (B, H,
        W) on the CPU.
        """
        for row, (fewer, image, prediction) in self._wanted(
            rows, list(zip(lowest.tolist(), images, predictions, strict=True))
        ):
            if fewer:
                self.after[row] = (image.cpu().clone(), prediction.clone())

    def _wanted(self, rows: Tensor, values: Iterable[Value]) -> list[tuple[int, Value]]:
        return [(row, one) for row, one in zip(rows.tolist(), values, strict=True) if row in self.ranks]

    def chosen(self) -> list[int]:
        """The rows shown: by rank those that the attack made worse, then others; at most a gallery's."""
        changed = sorted(self.after, key=self.ranks.__getitem__)
        others = sorted(self.before.keys() - self.after.keys(), key=self.ranks.__getitem__)
        limit = max_items(max((found.numel() for found in self.before.values()), default=0))
        return [*changed, *others][:limit]


def attacked_maps(
    candidates: MapCandidates,
    ids: Sequence[str],
    losses: Sequence[str],
    images: Tensor,
    maps: Tensor,
    *,
    classes: int,
    ball: Ball | None,
) -> list[GalleryMaps]:
    """The items of an attack on a segmentation model.

    `ids`: of all images of the shard; `losses`: name of the loss whose image counts, of each; "clean" for
    the unchanged image; `images`: the unchanged images of the rows in `candidates.chosen()`, (n, C, H, W);
    `maps`: their label maps, uint8 (n, H, W); `classes`: K; a prediction of K is no class; `ball`: the
    allowed perturbations.
    """
    items = []
    for row, clean, truth in zip(candidates.chosen(), images, maps, strict=True):
        before = candidates.before[row]
        changed, after = candidates.after.get(row, (clean, before))
        difference = changed.float() - clean.float()
        factor = amplification(difference, ball)
        known, then = (
            found.masked_fill(found >= classes, IGNORE).to(torch.uint8) for found in (before, after)
        )
        items.append(
            GalleryMaps(
                id=ids[row],
                rank=candidates.ranks[row],
                succeeded=row in candidates.after,
                width=clean.shape[2],
                height=clean.shape[1],
                clean=png(clean),
                changed=png(changed),
                difference=png(GREY + factor * difference),
                factor=factor,
                linf=finite(float(difference.abs().max())),
                l2=finite(float(difference.square().sum().sqrt())),
                loss=losses[row],
                truth=map_png(truth),
                map_before=map_png(known),
                map_after=map_png(then),
                accuracy_before=_accuracy(known, truth),
                accuracy_after=_accuracy(then, truth),
                shown=torch.cat([truth.flatten(), known.flatten(), then.flatten()]).unique().tolist(),
            )
        )
    return items


def _accuracy(prediction: Tensor, truth: Tensor) -> float | None:
    judged = truth != IGNORE
    total = int(judged.sum())
    return int((judged & (prediction == truth)).sum()) / total if total else None
