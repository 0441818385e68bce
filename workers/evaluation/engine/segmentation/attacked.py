"""Outcomes of an attack on segmentation, per image and loss. Legend: n images, L losses, K classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import safetensors.torch
import torch
from torch import Tensor

from assay.service.contract.gallery import GalleryItem
from assay.workers.evaluation.engine.outcomes import OutcomeFile

CLEAN = "clean"
"""The first candidate: the unattacked image."""


@dataclass(frozen=True)
class AttackedPixels:
    """One row per image, in the order of `ids`; all tensors are on the CPU.

    A candidate is an image that the adversary could show instead of the unattacked one: that image itself,
    and of each loss the one with the fewest right pixels. Each is within epsilon and within [0, 1], and was
    counted by the model without autocast.
    """

    ids: tuple[str, ...]
    names: tuple[str, ...]  # the candidates: `clean`, then the losses, (1 + L,)
    intersection: Tensor  # pixels of each class that were given that class, int64 (n, 1 + L, K)
    target: Tensor  # pixels of each class, int64 (n, K)
    predicted: Tensor  # pixels that were given each class, int64 (n, 1 + L, K)
    forward: Tensor
    backward: Tensor
    flags: Mapping[str, int] = field(default_factory=dict)  # number of images per warning, of any loss
    # Counts of each loss, in order: name, number, n, broken, forward, backward, seconds
    stages: Sequence[Mapping[str, Any]] = ()
    noted: Mapping[str, Any] = field(default_factory=dict)
    # Per image the candidate with the fewest right pixels, (n, C, H, W), if requested
    adversarial: Tensor | None = None
    maps: Tensor | None = None  # the label maps, uint8 (n, H, W), likewise
    gallery: tuple[GalleryItem, ...] | None = None
    analysis: ClassVar[bool] = False

    @property
    def worst(self) -> Tensor:
        """Per image the candidate with the fewest right pixels, the first of equal ones, int64 (n,)."""
        right = self.intersection.sum(2)
        number = torch.arange(right.shape[1])
        return torch.where(right == right.amin(1, keepdim=True), number, right.shape[1]).amin(1)

    def columns(self) -> dict[str, list[object]]:
        """The rows as JSON columns; `intersection` and `predicted` alone are the worst candidate's."""
        row, worst = torch.arange(len(self.ids)), self.worst
        counts: dict[str, list[object]] = {}
        for place, name in enumerate(self.names):
            counts[f"{name}_intersection"] = self.intersection[:, place].tolist()
            counts[f"{name}_predicted"] = self.predicted[:, place].tolist()
        return {
            "id": list(self.ids),
            "worst": [self.names[place] for place in worst.tolist()],
            "intersection": self.intersection[row, worst].tolist(),
            "target": self.target.tolist(),
            "predicted": self.predicted[row, worst].tolist(),
            **counts,
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }

    def evidence(self) -> dict[str, Any]:
        """Evidence for warnings, and the counts of each loss; counts of shards add up."""
        return {**self.flags, **self.noted, "stages": [dict(stage) for stage in self.stages]}

    def files(self) -> Iterable[OutcomeFile]:
        """The images with the fewest right pixels, if requested: one safetensors file.

        It has `images` (n, C, H, W) in [0, 1], `label_maps` (n, H, W) with 255 for what is ignored, and in
        its header, as JSON, the `ids` and the loss that found each (`losses`).
        """
        if self.adversarial is not None and self.maps is not None:
            found = self.worst.nonzero().flatten()
            tensors = {
                "images": self.adversarial[found].contiguous(),
                "label_maps": self.maps[found].contiguous(),
            }
            header = {
                "ids": json.dumps([self.ids[row] for row in found.tolist()]),
                "losses": json.dumps([self.names[self.worst[row]] for row in found.tolist()]),
            }
            content = safetensors.torch.save(tensors, metadata=header)
            yield OutcomeFile("adversarial", ".safetensors", content)
