"""Training batches in keyed order: from memory when the data fit, else loaded ahead by threads."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import torch
from torch import Tensor

from workers.data.dataset import ImageSet
from workers.data.segmentation import truth_of
from workers.training.randomness import epoch_order

CACHE_BYTES = 512 * 2**20
LOAD_CHUNK = 1024
MOST_LOADERS = 8


class Batches:
    """The training set cut into batches, addressed by step.

    An epoch visits the examples in an order keyed by seed and epoch and drops what does not fill a
    last batch (another part each epoch); a set smaller than one batch is one batch. With repeated
    augmentation an epoch is as long as ever, and visits the first examples of its order several times each.

    Attributes:
        batch_size: examples in a batch.
        steps_per_epoch: batches in an epoch.
    """

    def __init__(
        self,
        data: ImageSet,
        *,
        seed: int,
        image_size: int,
        batch_size: int,
        device: torch.device,
        repeats: int = 1,
    ):
        """Load all images now when their float32 pixels take at most `CACHE_BYTES`."""
        self._data = data
        self._seed = seed
        self._size = image_size
        self._device = device
        self._repeats = repeats
        self._n = len(data.ids)
        if self._n == 0:
            raise ValueError(f"data set {data.name!r} has no training examples")
        self.batch_size = min(batch_size, self._n)
        self.steps_per_epoch = self._n // self.batch_size
        self._cache: tuple[Tensor, Tensor] | None = None
        if self._n * data.channels * image_size**2 * 4 <= CACHE_BYTES:
            self._cache = self._load_all()

    def between(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches of the steps start..stop-1.

        Yields:
            Images, float32 (B, C, S, S) in [0, 1], and labels, int64 (B,), or label maps, uint8 (B, S, S),
            on the device.
        """
        if self._cache is None:
            yield from self._loaded_ahead(start, stop)
            return
        for indices in self._indices(start, stop):
            chosen = indices.to(self._device)
            images, truth = self._cache
            yield images[chosen], truth[chosen]

    def _indices(self, start: int, stop: int) -> Iterator[Tensor]:
        order: Tensor | None = None
        for step in range(start, stop):
            epoch, number = divmod(step, self.steps_per_epoch)
            if order is None or number == 0:
                visited = epoch_order(self._n, seed=self._seed, epoch=epoch)
                order = visited.repeat_interleave(self._repeats)[: self._n]
            first = number * self.batch_size
            yield order[first : first + self.batch_size]

    def _loaded_ahead(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor]]:
        threads = max(1, min(MOST_LOADERS, os.cpu_count() or 1))
        pending: deque[Future[tuple[Tensor, Tensor]]] = deque()
        indices = self._indices(start, stop)
        pool = ThreadPoolExecutor(threads, thread_name_prefix="load-images")
        try:
            for chosen in islice(indices, threads):
                pending.append(pool.submit(self._load, chosen))
            while pending:
                loaded = pending.popleft()
                for following in islice(indices, 1):
                    pending.append(pool.submit(self._load, following))
                images, truth = loaded.result()
                yield images.to(self._device), truth.to(self._device)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _load(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        chosen = indices.tolist()
        return self._data.images(chosen, self._size), truth_of(self._data, chosen, self._size)

    def _load_all(self) -> tuple[Tensor, Tensor]:
        chunks = [self._load(chunk) for chunk in torch.arange(self._n).split(LOAD_CHUNK)]
        images, truth = (torch.cat(parts).to(self._device) for parts in zip(*chunks, strict=True))
        return images, truth
