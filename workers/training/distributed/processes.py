"""Processes of a training, and their parts of every batch.

Shares of the loss add up to the whole batch's loss, so the sum of gradients is a single process's, up to
rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """Rows of a batch that belong to one process."""

    # ascending, in [0, whole); with row i also row whole - 1 - i, as mixup and cutmix mix the two
    rows: tuple[int, ...]
    whole: int  # rows of the whole batch

    @property
    def share(self) -> float:
        """Weight of the part's mean in the mean over the whole batch."""
        return len(self.rows) / self.whole

    def of(self, values: Tensor) -> Tensor:
        """Its rows of a draw for the whole batch, (whole, ...)."""
        return values if len(self.rows) == self.whole else values[list(self.rows)]


def everything(whole: int) -> Part:
    """All rows: the part of a single process."""
    return Part(tuple(range(whole)), whole)


@dataclass(frozen=True)
class Processes:
    """Position of this process in a training; more than one needs torch's process group."""

    rank: int = 0  # of this process, in [0, size)
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def part(self, batch: int) -> Part:
        """This process's part of a batch. Raises ValueError: no pair for each process."""
        pairs = (batch + 1) // 2
        if pairs < self.size:
            raise ValueError(
                f"{self.size} devices need batches of at least {2 * self.size - 1} examples:"
                f" these have {batch}"
            )
        begin, end = (pairs * rank // self.size for rank in (self.rank, self.rank + 1))
        front = range(begin, end)
        return Part(tuple(sorted({*front, *(batch - 1 - row for row in front)})), batch)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over all processes, in place; no gradient flows through it."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Broadcast the values of the first process."""
        if self.size > 1:
            for tensor in tensors:
                torch.distributed.broadcast(tensor, 0)

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """Runs the block in the first process, then in all others."""
        if self.size > 1 and not self.first:
            torch.distributed.barrier()
        yield
        if self.size > 1 and self.first:
            torch.distributed.barrier()


ALONE = Processes()
