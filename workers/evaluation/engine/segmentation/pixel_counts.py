"""Runs a segmentation model over images, counts pixels. n examples, B batch, K classes, H, W size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from assay.attacks.kernel import frozen
from assay.attacks.segmentation.kernel import predicted_classes
from assay.workers.data.formats.segmentation import IGNORE
from assay.workers.evaluation.engine.loader import Images, Loader, Running
from assay.workers.evaluation.engine.outcomes import WithFaults

Maps = Callable[[Sequence[int]], Tensor]
"""Loads label maps by index into the ids: classes or IGNORE, uint8 (B, H, W), on the CPU."""


@dataclass(frozen=True)
class PixelCounts(WithFaults):
    """One row of counts per image, in the order of `ids`; ignored pixels are not counted."""

    ids: tuple[str, ...]
    intersection: Tensor  # pixels of each class that were given that class, int64 (n, K)
    target: Tensor  # pixels of each class, int64 (n, K)
    predicted: Tensor  # pixels that were given each class, int64 (n, K)
    forward: Tensor
    backward: Tensor
    # Per image the counts under each corruption and severity, as `corrupted_pixel_counts.py` of
    # `service/metrics/statistics` writes them; None without corruptions. The other counts are then of the
    # uncorrupted image
    corrupted: tuple[str, ...] | None = None
    nonfinite: int = 0  # number of images with a pixel whose logits are not finite; such pixels are wrong
    noted: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> dict[str, list[object]]:
        """The rows as JSON columns; counts are lists over the classes."""
        return {
            "id": list(self.ids),
            "intersection": self.intersection.tolist(),
            "target": self.target.tolist(),
            "predicted": self.predicted.tolist(),
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
            **({} if self.corrupted is None else {"corrupted_pixels": list(self.corrupted)}),
        }


def segment(
    model: nn.Module,
    images_of: Images,
    maps_of: Maps,
    ids: Sequence[str],
    *,
    classes: int,
    **running: Unpack[Running],
) -> PixelCounts:
    """Runs the model on unattacked images.

    It maps images in [0, 1] to logits (B, K, H, W).
    """
    loader = Loader(model, images_of, None, ids, **running)
    tally, done = Tally(ids, classes), 0
    with torch.no_grad(), frozen(model):
        for rows in loader.batches():
            logits, maps = loader.load(rows)[1], maps_of(rows.tolist())
            tally.note(rows, checked_prediction(logits, maps, classes), maps)
            done += len(rows)
            loader.tell(done)
    return tally.counts(loader.noted())


class Tally:
    """The counts of all images."""

    def __init__(self, ids: Sequence[str], classes: int) -> None:
        self._ids = tuple(ids)
        self.classes = classes
        self._counts = torch.zeros(len(ids), 3, classes, dtype=torch.int64)
        self._forward = torch.zeros(len(ids), dtype=torch.int64)
        self._nonfinite = torch.zeros(len(ids), dtype=torch.bool)

    def note(self, rows: Tensor, prediction: Tensor, maps: Tensor, passes: int = 1) -> None:
        """Count the pixels of images at indices `rows` (B,), predicted in so many passes each.

        `prediction`: int64 (B, H, W) on the CPU, K where logits are not finite; `maps`: classes or IGNORE,
        uint8 (B, H, W).
        """
        self._counts[rows] = self.counted(rows, prediction, maps, passes)

    def counted(self, rows: Tensor, prediction: Tensor, maps: Tensor, passes: int) -> Tensor:
        """The counts of images, int64 (B, 3, K), once their passes are noted; arguments as of `note`."""
        self._forward[rows] += passes
        self._nonfinite[rows] |= (prediction == self.classes).flatten(1).any(dim=1)
        return count_pixels(prediction, maps, self.classes)

    def counts(self, noted: Mapping[str, Any], corrupted: tuple[str, ...] | None = None) -> PixelCounts:
        """What has been counted."""
        intersection, target, predicted = self._counts.unbind(1)
        return PixelCounts(
            ids=self._ids,
            intersection=intersection,
            target=target,
            predicted=predicted,
            forward=self._forward,
            backward=torch.zeros_like(self._forward),
            corrupted=corrupted,
            nonfinite=int(self._nonfinite.sum()),
            noted=noted,
        )


def checked_prediction(logits: Tensor, maps: Tensor, classes: int) -> Tensor:
    """`predicted_classes` on the CPU. A ValueError: the logits are not (B, K, H, W)."""
    wanted = (len(maps), classes, *maps.shape[1:])
    if logits.shape != wanted:
        raise ValueError(f"the model must give logits {wanted}, it gave {tuple(logits.shape)}")
    return predicted_classes(logits).cpu()


def count_pixels(prediction: Tensor, maps: Tensor, classes: int) -> Tensor:
    """Pixels of each class: intersection, target and predicted, int64 (B, 3, K).

    In a prediction, int64 (B, H, W), `classes` stands for no class; `maps`: classes or IGNORE, uint8 (B, H,
    W).
    """
    truth, judged = maps.to(torch.int64), maps != IGNORE
    image = torch.arange(len(maps)).view(-1, 1, 1) * (classes + 1)

    def per_class(labels: Tensor, where: Tensor) -> Tensor:
        bins = torch.bincount((labels + image)[where], minlength=len(maps) * (classes + 1))
        return bins.view(len(maps), classes + 1)[:, :classes]

    found = judged & (prediction == truth)
    parts = [per_class(truth, found), per_class(truth, judged), per_class(prediction, judged)]
    return torch.stack(parts, dim=1)
