"""Shards of examples that a test has in its hands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from assay.service.contract.corruption_cells import Cell
from assay.workers.evaluation.engine.shard import Shard

Images = Callable[[Sequence[int]], Tensor]


class Given:
    """A data set of what is given; what a test does not ask for may be left out."""

    name = "given"

    def __init__(
        self,
        ids: Sequence[str],
        *,
        task: str = "classification",
        classes: int = 0,
        images: Images | None = None,
        labels: Tensor | None = None,
        maps: Images | None = None,
        example: Callable[[int], tuple[Tensor, Tensor]] | None = None,
        cells: Callable[[Cell], Images] | None = None,
    ) -> None:
        self.ids, self.task, self.classes = list(ids), task, classes
        self.labels, self._images, self._maps, self._example, self._cells = (
            labels,
            images,
            maps,
            example,
            cells,
        )

    def images(self, indices: Sequence[int], size: int) -> Tensor:
        """The images at these indices."""
        assert self._images is not None
        return self._images(indices)

    def label_maps(self, indices: Sequence[int], size: int) -> Tensor:
        """The label maps at these indices."""
        assert self._maps is not None
        return self._maps(indices)

    def example(self, index: int) -> tuple[Tensor, Tensor]:
        """An image at its own size, and its label map."""
        assert self._example is not None
        return self._example(index)

    def cell_images(self, cell: Cell, indices: Sequence[int], size: int) -> Tensor:
        """The images of a cell at these indices."""
        assert self._cells is not None
        return self._cells(cell)(indices)


def shard(model: nn.Module, data: Any, order: Sequence[int] | None = None, **more: Any) -> Shard:
    """Some examples of a set, by default all; on the CPU and in batches of 4 unless told otherwise."""
    defaults = {"image_size": 8, "batch_size": 4, "device": torch.device("cpu")}
    chosen = range(len(data.ids)) if order is None else order
    return Shard(data=data, order=chosen, classifier=model, **{**defaults, **more})  # type: ignore[arg-type]
