"""Rows of detections, as the table of `tables.py` reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from toydet.assay.boxes import matched
from toydet.assay.detector import detections_of

from assay.workers.evaluation.engine.outcomes import WithoutFiles
from assay.workers.evaluation.engine.shard import Shard

Columns = dict[str, list[Any]]


@dataclass
class Detected(WithoutFiles):
    """One row per image; rows are added in their order."""

    shard: Shard
    cost: tuple[int, int]  # forward and backward passes of an image
    added: Columns = field(default_factory=dict)
    noted: dict[str, Any] = field(default_factory=dict)

    @property
    def ids(self) -> tuple[str, ...]:
        """Example ids, (n,)."""
        return self.shard.ids

    @property
    def forward(self) -> Tensor:
        """Forward passes of each row, int64 (n,)."""
        return torch.full((len(self.ids),), self.cost[0])

    @property
    def backward(self) -> Tensor:
        """Backward passes of each row, int64 (n,)."""
        return torch.full((len(self.ids),), self.cost[1])

    def add(self, **columns: list[Any]) -> None:
        """Columns of a batch's images."""
        for name, values in columns.items():
            self.added.setdefault(name, []).extend(values)

    def claim(self, outputs: Tensor, truth: Tensor, prefix: str = "") -> None:
        """What a batch's outputs claim, and the boxes that it finds."""
        given = [[box for box in image if box[0] >= 0] for image in truth.tolist()]
        found = detections_of(outputs, self.shard.classes, self.shard.image_size)
        for image, claimed in zip(given, found, strict=True):
            labels, boxes = [int(box[0]) for box in image], [box[1:] for box in image]
            one = {
                "labels": claimed and [detection.label for detection in claimed],
                "scores": claimed and [detection.score for detection in claimed],
                "boxes": claimed and [round(side, 3) for detection in claimed for side in detection.box],
                "matches": claimed and matched(claimed, labels, boxes),
            }
            self.add(**{f"{prefix}{name}": [value] for name, value in one.items()})
            if not prefix:
                self.add(truth_labels=[labels], truth_boxes=[[side for box in boxes for side in box]])

    def columns(self) -> Columns:
        """The rows as JSON columns; boxes are four numbers each, one after the other."""
        passes = {"forward": self.forward.tolist(), "backward": self.backward.tolist()}
        return {"id": [*self.ids], **self.added, **passes}

    def evidence(self) -> dict[str, Any]:
        """The names of the classes, and what the loader noted."""
        return {"class_names": [*self.shard.data.class_names], **self.noted}
