"""Batches of a training: the interface, and batches of images in memory.

Legend: B examples of this process's part of a batch, C channels, S image side.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from assay.attacks.sending import sent
from assay.workers import catalog
from assay.workers.data.formats.dataset import ImageSet, Levels
from assay.workers.data.formats.prefetch import prefetch
from assay.workers.training.augmentation.augment import move_maps, move_pixels
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.order import Order, OrderedBatches, Visit
from assay.workers.training.recipe import Augmentation

CACHE_BYTES = 512 * 2**20
LOAD_CHUNK = 1024


class TrainingBatch(NamedTuple):
    """A step's examples, on the device; of several processes, this one's part."""

    # images, float32 (B, C, S, S) in [0, 1], augmented (noise of random erasing may leave [0, 1]); of text
    # the tokens, int64 (B, N)
    images: Tensor
    # labels, int64 (B,), label maps, (B, S, S), moved with their images, or next words, int64 (B, N)
    truth: Tensor


class _Loaded(NamedTuple):
    """Examples of the data set, on the CPU or the device."""

    values: Tensor  # levels, uint8, or pixels in [0, 1], float32, (n, C, S, S)
    white: int | None  # level of the pixel value 1; None for pixels
    truth: Tensor

    def batch(self) -> TrainingBatch:
        """The examples with pixels."""
        pixels = self.values if self.white is None else Levels(self.values, self.white).pixels()
        return TrainingBatch(pixels, self.truth)


class Source(Protocol):
    """Batches of a training, by step."""

    @property
    def batch_size(self) -> int:
        """Examples per batch, over all processes."""

    @property
    def steps_per_epoch(self) -> int:
        """Batches per epoch."""

    def between(self, start: int, stop: int) -> Generator[TrainingBatch, None, None]:
        """The batches of the steps start..stop-1, independent of the start."""


class Batches(OrderedBatches):
    """Images at the model's size: from the device's memory if the data fit, else prefetched by threads.

    Bytes become pixels on the device, where geometric augmentation (shift, rotation, scale, flip) runs.
    """

    def __init__(
        self,
        data: ImageSet,
        *,
        seed: int,
        image_size: int,
        batch_size: int,
        device: torch.device,
        augmentation: Augmentation | None = None,
        processes: Processes = ALONE,
        rows: Sequence[int] | None = None,
    ):
        """Loads all images at once if their bytes, or float32 pixels, take at most `CACHE_BYTES`.

        `rows`: indices to visit.
        """
        self._data = data
        self._seed = seed
        self._size = image_size
        self._device = device
        self._augmentation = augmentation or Augmentation()
        n = len(data.ids)
        if n == 0:
            raise ValueError(f"data set {data.name!r} has no training examples")
        repeats = self._augmentation.repeats
        super().__init__(Order(n, seed=seed, batch_size=batch_size, repeats=repeats, rows=rows), processes)
        self._cache: _Loaded | None = None
        values = n * data.channels * image_size**2
        if 4 * values <= CACHE_BYTES or (values <= CACHE_BYTES and self._has_bytes()):
            self._cache = self._load_all(n)

    def between(self, start: int, stop: int) -> Generator[TrainingBatch, None, None]:
        """The batches of the steps start..stop-1."""
        for step, batch in self._still(start, stop):
            yield self._moved(batch, step)

    def _moved(self, batch: TrainingBatch, step: int) -> TrainingBatch:
        images, truth = batch
        moved = move_pixels(images, self._augmentation, seed=self._seed, step=step, part=self._part)
        if truth.dim() > 1 and self._augmentation.moves:
            truth = move_maps(truth, self._augmentation, seed=self._seed, step=step, part=self._part)
        return TrainingBatch(moved, truth)

    def _still(self, start: int, stop: int) -> Iterator[tuple[int, TrainingBatch]]:
        visits = self._order.between(start, stop)
        if self._cache is None:
            yield from self._loaded_ahead(visits)
            return
        for step, _, _, indices in visits:
            chosen, (values, white, truth) = sent(self._part.of(indices), self._device), self._cache
            yield step, _Loaded(values[chosen], white, truth[chosen]).batch()

    def _loaded_ahead(self, visits: Iterator[Visit]) -> Iterator[tuple[int, TrainingBatch]]:
        def load(visit: Visit) -> tuple[int, _Loaded]:
            return visit.step, self._load(self._part.of(visit.indices))

        with closing(prefetch(load, visits)) as ahead:
            for step, (values, white, truth) in ahead:
                yield step, _Loaded(sent(values, self._device), white, sent(truth, self._device)).batch()

    def _has_bytes(self) -> bool:
        return self._load(torch.tensor([0])).white is not None

    def _load(self, indices: Tensor) -> _Loaded:
        chosen = indices.tolist()
        methods = catalog.task(self._data.task)
        found = methods.inputs(self._data, chosen, self._size)
        truth = methods.truth(self._data, chosen, self._size)
        return _Loaded(*found, truth) if isinstance(found, Levels) else _Loaded(found, None, truth)

    def _load_all(self, n: int) -> _Loaded:
        chunks = [self._load(chunk) for chunk in torch.arange(n).split(LOAD_CHUNK)]
        # Once: torch would keep pinned memory.
        values = torch.cat([chunk.values for chunk in chunks]).to(self._device)
        return _Loaded(values, chunks[0].white, torch.cat([chunk.truth for chunk in chunks]).to(self._device))
