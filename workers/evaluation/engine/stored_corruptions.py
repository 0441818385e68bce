"""Runs a classifier over stored corrupted images, one corruption and severity after the other.

Hendrycks and Dietterich 2019, "Benchmarking Neural Network Robustness to Common Corruptions and
Perturbations". The set has no uncorrupted images, so these are not evaluated.

Legend: n examples, C cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from assay.attacks.judgement import judge
from assay.attacks.kernel import frozen
from assay.service.contract.corruption_cells import Cell
from assay.workers.evaluation.engine.outcomes import WithFaults
from assay.workers.evaluation.engine.shard import Shard


@dataclass(frozen=True)
class CellOutcomes(WithFaults):
    """One row per example, in the order of `ids`."""

    ids: tuple[str, ...]
    labels: Tensor  # true classes, int64 (n,)
    right: Tensor  # whether the example is right in each cell, bool (n, C)
    forward: Tensor
    backward: Tensor
    nonfinite: int = 0  # number of images with logits that are not finite; they are wrong
    noted: Mapping[str, Any] = field(default_factory=dict)

    def columns(self) -> dict[str, list[object]]:
        """The rows as JSON columns; `corrupted` is a text of 0 and 1 in the order of the cells."""
        return {
            "id": list(self.ids),
            "label": self.labels.tolist(),
            "corrupted": [flags(row) for row in self.right],
            "forward": self.forward.tolist(),
            "backward": self.backward.tolist(),
        }


@dataclass(frozen=True)
class StoredCells:
    """The evaluation of stored images in some cells, ready to run."""

    cells: Sequence[Cell]

    def measure(self, shard: Shard) -> CellOutcomes:
        """One row per example; progress counts an example by the share of its cells that are done."""
        labels, ids = shard.labels, shard.ids
        n, count, nonfinite = len(ids), len(self.cells), 0
        right = torch.zeros(n, count, dtype=torch.bool)
        noted: dict[str, Any] = {}
        with torch.no_grad(), frozen(shard.classifier):
            for number, cell in enumerate(self.cells):
                loader = shard.loader(shard.cell_images(cell))
                found: list[Tensor] = []
                for rows in loader.batches():
                    judged = judge(loader.load(rows)[1], loader.labels_of(rows))
                    found.append(torch.stack([judged.rank == 0, judged.nonfinite]))
                    shard.progress((number * n + int(rows[-1]) + 1) // count)
                # One copy for a cell: the host decodes a batch while the device judges the one before.
                right[:, number], lost = torch.cat(found, dim=1).cpu().unbind()
                nonfinite += int(lost.sum())
                noted |= loader.noted()
        return CellOutcomes(
            ids=ids,
            labels=labels,
            right=right,
            forward=torch.full((n,), count, dtype=torch.int64),
            backward=torch.zeros(n, dtype=torch.int64),
            nonfinite=nonfinite,
            noted=noted,
        )


def flags(right: Tensor) -> str:
    """Whether an example is right in each cell, bool (C,), as a text of 0 and 1."""
    return "".join("1" if flag else "0" for flag in right.tolist())
