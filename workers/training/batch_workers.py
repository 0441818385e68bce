"""Batches of examples made one by one (`Examples`), prefetched by worker processes.

Seed, epoch and position in the epoch's order key an example's draws: processes, resumption and batch size do
not matter.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from assay.attacks.sending import sent
from assay.workers.data.formats.dataset import Levels
from assay.workers.evaluator_link import die_with_parent
from assay.workers.exhaustion import is_out_of_memory
from assay.workers.training.augmentation.augment import erase
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.examples import Example, Examples
from assay.workers.training.order import Order, OrderedBatches
from assay.workers.training.randomness import derive_seed, library_generators_restored

Array = npt.NDArray[Any]
CHUNK = 16  # Examples per chunk between processes
MAX_WORKERS = 16
WORTHWHILE = 2  # With fewer cores to spare, a process that makes examples takes the training's


class MakingFailed(Exception):
    """An example could not be made, and the user's data are not to blame."""


class ChunkRequest(NamedTuple):
    """Examples of one step: indices in the data set, and seeds."""

    indices: tuple[int, ...]
    seeds: tuple[int, ...]


class Chunk(NamedTuple):
    """Chunk of n examples as arrays, which travel through a pipe between processes.

    Torch hands shared memory of tensors over through sockets, and an evaluator has none.
    """

    images: Array  # (n, C, S, S), uint8 or float32
    truth: Array  # labels of all, (n, ...)
    erased: Array  # int64 (n, 4)
    seeds: Array  # int64 (n,)


class Failed(NamedTuple):
    """Why an example was not made, and the error to raise; a ValueError blames the data."""

    error: type[ValueError | MemoryError | MakingFailed]
    message: str


def worker_count(cores: int, threads: int) -> int:
    """How many processes make examples for a training."""
    spare = cores - threads
    return min(spare, MAX_WORKERS) if spare >= WORTHWHILE else 0


class MadeBatches(OrderedBatches):
    """Batches of a training, from examples made one by one."""

    def __init__(
        self,
        examples: Examples,
        *,
        seed: int,
        batch_size: int,
        device: torch.device,
        repeats: int = 1,
        processes: Processes = ALONE,
        workers: int = 0,
        rows: Sequence[int] | None = None,
        noise: tuple[Sequence[float], Sequence[float]] | None = None,
    ):
        """Defers all work to `between`.

        `batch_size` counts all processes' examples; an epoch visits `rows` (None: all) `repeats` times.
        `workers` processes make the examples; with 0 this process does. `noise`: mean and standard deviation
        of erased rectangles.
        """
        if len(examples.ids) == 0:
            raise ValueError("there are no training examples")
        self._examples = examples
        self._seed = seed
        self._device = device
        self._workers = workers
        self._noise = noise
        n = len(examples.ids)
        super().__init__(Order(n, seed=seed, batch_size=batch_size, repeats=repeats, rows=rows), processes)

    def between(self, start: int, stop: int) -> Generator[TrainingBatch, None, None]:
        """The batches of the steps start..stop-1."""
        per_step = -(-len(self._part.rows) // CHUNK)
        with closing(self._chunks(start, stop)) as chunks:
            while batch := list(islice(chunks, per_step)):
                yield self._joined(batch)

    def _tasks(self, start: int, stop: int) -> Iterator[ChunkRequest]:
        for _, epoch, place, indices in self._order.between(start, stop):
            chosen = self._part.of(indices).tolist()
            seeds = [derive_seed(self._seed, f"example/{place + row}", epoch) for row in self._part.rows]
            for first in range(0, len(chosen), CHUNK):
                rows = slice(first, first + CHUNK)
                yield ChunkRequest(tuple(chosen[rows]), tuple(seeds[rows]))

    def _chunks(self, start: int, stop: int) -> Generator[Chunk, None, None]:
        making = _Making(self._examples)
        tasks = self._tasks(start, stop)
        made = map(making.__getitem__, tasks) if self._workers == 0 else _ahead(making, tasks, self._workers)
        for chunk in made:
            if isinstance(chunk, Failed):
                raise chunk.error(chunk.message)
            yield chunk

    def _joined(self, chunks: Sequence[Chunk]) -> TrainingBatch:
        images = torch.cat([sent(torch.from_numpy(chunk.images), self._device) for chunk in chunks])
        if images.dtype == torch.uint8:
            images = Levels(images, 255).pixels()
        truth, erased, seeds = (
            torch.cat([torch.from_numpy(part) for part in parts])
            for parts in list(zip(*chunks, strict=True))[1:]
        )
        if self._noise is not None:
            erase(images, erased, seeds.tolist(), self._noise)
        return TrainingBatch(images, sent(truth, self._device))


class _Making(Dataset[Chunk | Failed]):
    """Makes the requested examples, in this process or a worker."""

    def __init__(self, examples: Examples) -> None:
        self._examples = examples

    def __getitem__(self, task: ChunkRequest) -> Chunk | Failed:
        made: list[Example] = []
        with library_generators_restored():
            for index, seed in zip(*task, strict=True):
                try:
                    made.append(self._examples.make(index, seed))
                except Exception as error:  # reported with its example
                    text = f"training example {self._examples.ids[index]!r}: {error}"
                    if isinstance(error, ValueError):
                        return Failed(ValueError, text)
                    kind = MemoryError if is_out_of_memory(error) else MakingFailed
                    return Failed(kind, f"{text} ({type(error).__name__})")
        images, truth, erased = zip(*made, strict=True)
        return Chunk(
            torch.stack(images).numpy(), torch.stack(truth).numpy(), np.array(erased), np.array(task.seeds)
        )


def _ahead(making: _Making, tasks: Iterable[ChunkRequest], workers: int) -> Iterator[Chunk | Failed]:
    """The same, in order, from other processes, which end with the iterator or this process."""
    loader = DataLoader(
        making,
        batch_size=None,
        sampler=tasks,
        num_workers=workers,
        collate_fn=_unchanged,  # type: ignore[arg-type]  # of single items: they are chunks already
        # Forks share the data set's memory; a fresh process would need it pickled.
        multiprocessing_context="fork",
        worker_init_fn=partial(_begin, parent=os.getpid()),
        generator=torch.Generator(),  # leaves the global generator alone
    )
    with warnings.catch_warnings():
        # Python 3.12 warns of forks of threaded processes; torch recreates its threads.
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        iterator = iter(loader)
    yield from iterator


def _begin(number: int, parent: int) -> None:
    del number
    die_with_parent(parent)


def _unchanged(chunk: Chunk | Failed) -> Chunk | Failed:
    return chunk
