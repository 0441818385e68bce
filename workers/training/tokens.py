"""Batches of words: windows of a long text for language models, labelled texts for classifiers.

Legend: B examples of this process's part of a batch, N tokens, L tokens of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import cast

import torch
from torch import Tensor

from assay.attacks.sending import sent
from assay.workers.data.formats.text import LanguageSet, SequenceSet, TextSet
from assay.workers.training.batches import TrainingBatch
from assay.workers.training.distributed.processes import ALONE, Processes
from assay.workers.training.order import Order, OrderedBatches
from assay.workers.training.source import Batching

Load = Callable[[Sequence[int]], tuple[Tensor, Tensor]]


Read = Callable[[TextSet, int], tuple[Load, int]]
"""From a set and a length to what loads the tokens (B, L) and the truth of examples, and their number."""


class TokenBatches(OrderedBatches):
    """Batches of a training on text, from memory.

    The text of a language set is one stream, cut into consecutive windows of L words (an incomplete last
    window is dropped), with targets shifted by a word. Seed and epoch key the order of all windows.
    """

    def __init__(
        self,
        data: TextSet,
        read: Read,
        *,
        length: int,
        seed: int,
        batch_size: int,
        device: torch.device,
        processes: Processes = ALONE,
        rows: Sequence[int] | None = None,
    ) -> None:
        """Prepares the order, keyed by the seed; only the stream of a language set is read before `between`.

        `length` is L, and the max words of a labelled text. A batch has `batch_size` examples over all
        processes; `rows` (None: all) are visited.
        """
        self._load, n = read(data, length)
        if n == 0:
            raise ValueError(f"data set {data.name!r} has no training examples")
        self._device = device
        super().__init__(Order(n, seed=seed, batch_size=batch_size, rows=rows), processes)

    def between(self, start: int, stop: int) -> Generator[TrainingBatch, None, None]:
        """The batches of the steps start..stop-1: the whole batch of this process each."""
        for visit in self._order.between(start, stop):
            tokens, truth = self._load(self._part.of(visit.indices).tolist())
            yield TrainingBatch(sent(tokens, self._device), sent(truth, self._device))


def token_batches(data: TextSet, read: Read, how: Batching) -> TokenBatches:
    """The batches of a training on text."""
    return TokenBatches(
        data,
        read,
        length=how.image_size,
        seed=how.seed,
        batch_size=how.batch_size,
        device=how.device,
        processes=how.processes,
        rows=how.rows,
    )


def windows(data: TextSet, length: int) -> tuple[Load, int]:
    """The windows of a text, with the words that follow each word: int64 (B, L), (B, L)."""
    stream = torch.from_numpy(cast(LanguageSet, data).stream())
    count = (len(stream) - 1) // length
    if count == 0:
        raise ValueError(
            f"the training text of {data.name!r} has {len(stream)} words, a window of {length} needs one more"
            " than it is long: choose a smaller length"
        )

    def load(indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        places = torch.tensor(indices, dtype=torch.int64)[:, None] * length + torch.arange(length + 1)
        words = stream[places].to(torch.int64)  # (B, L + 1)
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()

    return load, count


def texts(data: TextSet, length: int) -> tuple[Load, int]:
    """Labelled texts: int64 (B, N), (B,)."""
    labelled = cast(SequenceSet, data)

    def load(indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        return labelled.tokens(indices, length), labelled.labels[torch.tensor(indices, dtype=torch.int64)]

    return load, len(labelled.ids)
