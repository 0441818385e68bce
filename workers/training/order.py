"""The order in which a training visits its examples, keyed by seed and epoch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from assay.workers.training.randomness import epoch_order


class Visit(NamedTuple):
    """What one step visits.

    Attributes:
        step: counted from 0.
        epoch: counted from 0.
        first: place of its first example in the order of the epoch.
        indices: the examples' indices in the data set, int64 (B,).
    """

    step: int
    epoch: int
    first: int
    indices: Tensor


class Order:
    """The training set cut into batches, addressed by step.

    An epoch visits the examples in an order of its own and drops what does not fill a last batch (another
    part each epoch); a set smaller than one batch is one batch. With repeated augmentation an epoch is as
    long as ever, and visits the first examples of its order several times each.

    Attributes:
        batch_size: examples in a batch, B.
        steps_per_epoch: batches in an epoch.
    """

    def __init__(self, n: int, *, seed: int, batch_size: int, repeats: int = 1):
        """For n examples, at least 1."""
        self._n = n
        self._seed = seed
        self._repeats = repeats
        self.batch_size = min(batch_size, n)
        self.steps_per_epoch = n // self.batch_size

    def between(self, start: int, stop: int) -> Iterator[Visit]:
        """What the steps start..stop-1 visit."""
        order: Tensor | None = None
        for step in range(start, stop):
            epoch, number = divmod(step, self.steps_per_epoch)
            if order is None or number == 0:
                visited = epoch_order(self._n, seed=self._seed, epoch=epoch)
                order = visited.repeat_interleave(self._repeats)[: self._n]
            first = number * self.batch_size
            yield Visit(step, epoch, first, order[first : first + self.batch_size])
