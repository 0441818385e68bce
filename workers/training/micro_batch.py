"""Micro-batches: pieces of a batch, with accumulated gradients, halved where memory is short."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn

from assay.service.contract.findings.evidence import ReducedBatch
from assay.workers import accelerator
from assay.workers.training.distributed.processes import Part, Processes
from assay.workers.training.recipe import Augmentation


class MicroBatch:
    """The most examples of a pass; `reduced` tells where memory was short, over all."""

    def __init__(
        self, asked: int | None, processes: Processes, augmentation: Augmentation, *, batch_norm: bool
    ) -> None:
        """`asked`: most examples over all processes (None: whole batches); `batch_norm`: it is in passes."""
        self._rows = None if asked is None else -(-asked // processes.size)
        self._processes = processes
        self._batch_norm = batch_norm
        # Mixed examples come in pairs; a variance takes two.
        self._least = 2 if batch_norm or augmentation.mixup > 0 or augmentation.cutmix > 0 else 1
        # Processes that share statistics do as many passes.
        self._alike = batch_norm and processes.size > 1
        self.reduced: ReducedBatch | None = None

    @property
    def rows(self) -> int | None:
        """Most examples of a pass in this process; None: whole batches."""
        return self._rows

    def halve(self, whole: int) -> None:
        """Halve it after a too large pass, alike in all processes; OutOfMemoryError: it was the smallest."""
        size, largest = self._processes.size, max(self._counts(whole))
        used = min(largest if self._rows is None else max(self._rows, 1 if self.reduced else 2), largest)
        if used <= self._least:
            raise torch.OutOfMemoryError(f"not even {used} of {whole} examples of a batch fit into memory")
        self._rows = max(used // 2, self._least)
        asked = self.reduced["asked"] if self.reduced else min(used * size, whole)
        self.reduced = {"asked": asked, "used": min(self._rows * size, whole), "batch_norm": self._batch_norm}
        accelerator.empty_cache()

    def pieces(self, part: Part, device: torch.device) -> Iterator[tuple[Tensor | None, Part]]:
        """Rows of this process's batch, None for all, and their part of the whole batch.

        Rows mixed with each other, mirror images, stay in one piece: at least a pair, or a single example
        where nothing is mixed and memory was short.
        """
        count = len(part.rows)
        counts = self._counts(part.whole) if self._alike else [count]
        if self._rows is None or max(counts) <= self._rows:
            yield None, part
            return
        for places in self._places(count, counts, self._rows):
            rows = tuple(part.rows[place] for place in places)
            yield torch.tensor(places, device=device), Part(rows, part.whole)

    def _counts(self, whole: int) -> list[int]:
        size = self._processes.size
        return [len(Processes(rank, size).part(whole).rows) for rank in range(size)]

    def _places(self, count: int, counts: list[int], rows: int) -> Iterator[list[int]]:
        if self.reduced and rows == 1:
            yield from ([place] for place in range(count))
            return
        pairs = (count + 1) // 2
        fewest, most = (min(counts) + 1) // 2, (max(counts) + 1) // 2
        pieces = min(-(-most // max(rows // 2, 1)), fewest)
        for number in range(pieces):
            front = range(pairs * number // pieces, pairs * (number + 1) // pieces)
            yield sorted({*front, *(count - 1 - place for place in front)})

    def state(self) -> dict[str, Any] | None:
        """A checkpoint's part of it; None if it is as asked for."""
        return None if self.reduced is None else {"rows": self._rows, "reduced": dict(self.reduced)}

    def restore(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a result of `state`."""
        if state is not None:
            self._rows = state["rows"]
            self.reduced = cast(ReducedBatch, dict(state["reduced"]))


class KeptBuffers:
    """A model's buffers before a step that is done again: passes change statistics."""

    def __init__(self, model: nn.Module) -> None:
        self._kept = [
            (module, name, tensor, tensor.detach().clone())
            for module in model.modules()
            for name, tensor in module.named_buffers(recurse=False)
        ]

    @torch.no_grad()
    def put_back(self) -> None:
        """Restore them, replaced ones too."""
        for module, name, tensor, values in self._kept:
            tensor.copy_(values)
            setattr(module, name, tensor)
