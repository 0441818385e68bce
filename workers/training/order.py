"""Order of a training's examples, keyed by seed and epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from assay.workers.training.distributed.processes import Processes
from assay.workers.training.randomness import epoch_order


class Visit(NamedTuple):
    """Examples of a step."""

    step: int  # counted from 0
    epoch: int  # counted from 0
    first: int  # position in the epoch's order
    indices: Tensor  # examples in the data set, int64 (B,)


class Order:
    """Training set cut into batches, addressed by step.

    Each epoch has its own order and drops an incomplete last batch; a set smaller than a batch is one batch.
    With repeated augmentation an epoch has the same length and visits the first examples of its order several
    times each.
    """

    def __init__(
        self, n: int, *, seed: int, batch_size: int, repeats: int = 1, rows: Sequence[int] | None = None
    ):
        """`n` is at least 1; `rows`: ascending indices in a larger set."""
        self._rows = None if rows is None else torch.tensor(rows, dtype=torch.int64)
        n = n if rows is None else len(rows)
        self._n = n
        self._seed = seed
        self._repeats = repeats
        self.batch_size = min(batch_size, n)
        self.steps_per_epoch = n // self.batch_size

    def between(self, start: int, stop: int) -> Iterator[Visit]:
        """Visits of the steps start..stop-1."""
        order: Tensor | None = None
        for step in range(start, stop):
            epoch, number = divmod(step, self.steps_per_epoch)
            if order is None or number == 0:
                visited = epoch_order(self._n, seed=self._seed, epoch=epoch)
                visited = visited if self._rows is None else self._rows[visited]
                order = visited.repeat_interleave(self._repeats)[: self._n]
            first = number * self.batch_size
            yield Visit(step, epoch, first, order[first : first + self.batch_size])


class OrderedBatches:
    """Batches in an order, with a part of each for this process."""

    def __init__(self, order: Order, processes: Processes) -> None:
        self._order = order
        self._part = processes.part(order.batch_size)

    @property
    def batch_size(self) -> int:
        """Examples per batch, over all processes."""
        return self._order.batch_size

    @property
    def steps_per_epoch(self) -> int:
        """Batches per epoch."""
        return self._order.steps_per_epoch
