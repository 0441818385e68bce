"""The processes of one training, and which part of every batch each of them has.

A process minimises its share of the loss: the shares add up to the loss of the whole batch, so the sum of the
gradients is the gradient that one process would have found, up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed
from torch import Tensor

# Gradients are summed in pieces of about this size: few messages, and little memory beside the gradients.
BUCKET_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Part:
    """The rows of a batch that one process has.

    Attributes:
        rows: ascending, of [0, whole); with row i comes row whole - 1 - i, with which mixup and cutmix mix
            it.
        whole: rows of the whole batch.
    """

    rows: tuple[int, ...]
    whole: int

    @property
    def share(self) -> float:
        """What the mean over the part counts for in the mean over the whole."""
        return len(self.rows) / self.whole

    def of(self, values: Tensor) -> Tensor:
        """Its rows of what was drawn for the whole batch, (whole, ...)."""
        return values if len(self.rows) == self.whole else values[list(self.rows)]


def everything(whole: int) -> Part:
    """All rows: the part of a process that is alone."""
    return Part(tuple(range(whole)), whole)


@dataclass(frozen=True)
class Processes:
    """This process among those of a training; with more than one, torch's process group must be there.

    Attributes:
        rank: of this process, in [0, size).
        size: how many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def first(self) -> bool:
        """Whether this process writes and reports."""
        return self.rank == 0

    def part(self, batch: int) -> Part:
        """The part of this process in a batch of so many examples.

        Raises:
            ValueError: the batch has too few for a pair in each process.
        """
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
        """The sum over all processes, in place; no gradient flows through it."""
        if self.size > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def share(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the values that the first one has."""
        if self.size > 1:
            for tensor in tensors:
                torch.distributed.broadcast(tensor, 0)

    def sum_gradients(self, weights: Sequence[Tensor]) -> None:
        """Replace the gradient of each weight by the sum over all processes."""
        if self.size == 1:
            return
        for bucket in _buckets([weight.grad for weight in weights if weight.grad is not None]):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            torch.distributed.all_reduce(flat)
            parts = flat.split([gradient.numel() for gradient in bucket])
            for gradient, part in zip(bucket, parts, strict=True):
                gradient.copy_(part.view_as(gradient))

    @contextmanager
    def first_before_others(self) -> Iterator[None]:
        """The block runs in the first process, and then in all others."""
        if self.size > 1 and not self.first:
            torch.distributed.barrier()
        yield
        if self.size > 1 and self.first:
            torch.distributed.barrier()


ALONE = Processes()


def _buckets(gradients: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The gradients in order, those of one type together, cut into buckets."""
    bucket: list[Tensor] = []
    size = 0
    for gradient in gradients:
        if bucket and (gradient.dtype != bucket[0].dtype or size >= BUCKET_BYTES):
            yield bucket
            bucket, size = [], 0
        bucket.append(gradient)
        size += gradient.nbytes
    if bucket:
        yield bucket
