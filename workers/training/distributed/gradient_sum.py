"""Sum of the gradients over the processes of a training, while the backward pass computes the rest.

Trained weights form buckets in reverse order, about the order of the backward pass (Li et al., "PyTorch
Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2). A bucket is sent
when its gradients are there and all earlier buckets are sent: the order of messages, and so the bits of the
sums, are the same in all processes and runs. A weight left out by a pass holds back its bucket, and later
buckets, to the end of the pass.

Of several pieces of a batch only the last one's backward pass sends. A process that ran out of memory sends
zeros for the rest, so that the others never wait for it (`Learner.update`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed
from torch import Tensor

from assay.workers.training.distributed.processes import Processes

BUCKET_BYTES = 25 * 2**20  # As torch's DistributedDataParallel: few messages, the first early


class _Sent(NamedTuple):
    """A bucket on its way: gradients, then how many processes have each."""

    flat: Tensor
    work: torch.distributed.Work


class GradientSum:
    """The sum of the gradients of the trained weights over all processes, step after step."""

    def __init__(self, processes: Processes, weights: Sequence[Tensor], *, overlapped: bool) -> None:
        """Adds a hook to each weight, in the same order in all processes, unless this is the only process.

        `overlapped` sends during the backward pass; not for a model whose backward pass has sums of its own:
        all sums of a group must come in the same order in all processes.
        """
        self._buckets = list(_buckets(weights[::-1])) if processes.size > 1 else []
        self._bucket_of = {id(weight): i for i, bucket in enumerate(self._buckets) for weight in bucket}
        self._missing: list[int] = []
        self._sent: list[_Sent] = []
        self._sending = False
        if self._buckets and overlapped:
            for weight in weights:
                weight.register_post_accumulate_grad_hook(self._accumulated)

    @contextmanager
    def during(self, last: bool) -> Iterator[None]:
        """Sends what the backward pass in the block completes, in the step's `last` pass."""
        self._missing = [len(bucket) for bucket in self._buckets]
        self._sending = last
        try:
            yield
        finally:
            self._sending = False

    def finish(self, *, failed: bool = False) -> None:
        """Send the rest, wait, replace gradients by sums; a gradient missing everywhere stays None."""
        while len(self._sent) < len(self._buckets):
            self._send(failed=failed)
        sent, self._sent = self._sent, []
        for bucket, (flat, work) in zip(self._buckets, sent, strict=True):
            work.wait()
            if not failed:
                _put_back(bucket, flat)

    def _accumulated(self, weight: Tensor) -> None:
        if not self._sending:
            return
        self._missing[self._bucket_of[id(weight)]] -= 1
        while len(self._sent) < len(self._buckets) and self._missing[len(self._sent)] == 0:
            self._send()

    def _send(self, *, failed: bool = False) -> None:
        bucket = self._buckets[len(self._sent)]
        if failed:
            flat = bucket[0].new_zeros(sum(weight.numel() for weight in bucket) + len(bucket))
        else:
            flat = _flattened(bucket)
        work = torch.distributed.all_reduce(flat, async_op=True)
        assert work is not None
        self._sent.append(_Sent(flat, work))


def _flattened(bucket: Sequence[Tensor]) -> Tensor:
    there = bucket[0].new_ones(len(bucket))
    parts = []
    for number, weight in enumerate(bucket):
        if weight.grad is None:
            there[number] = 0
            parts.append(weight.new_zeros(weight.numel()))
        else:
            parts.append(weight.grad.reshape(-1))
    return torch.cat([*parts, there])


@torch.no_grad()
def _put_back(bucket: Sequence[Tensor], flat: Tensor) -> None:
    *parts, there = flat.split([*(weight.numel() for weight in bucket), len(bucket)])
    # Where a gradient is missing: on a GPU this waits for the sum.
    anywhere = there.tolist() if any(weight.grad is None for weight in bucket) else []
    for number, (weight, part) in enumerate(zip(bucket, parts, strict=True)):
        if weight.grad is not None:
            weight.grad.copy_(part.view_as(weight.grad))
        elif anywhere[number] > 0:
            weight.grad = part.view_as(weight).clone()


def _buckets(weights: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    size = 0
    for weight in weights:
        if bucket and (
            size >= BUCKET_BYTES or weight.dtype != bucket[0].dtype or weight.device != bucket[0].device
        ):
            yield bucket
            bucket, size = [], 0
        bucket.append(weight)
        size += weight.nbytes
    if bucket:
        yield bucket
