"""Interface of training examples made one by one, between a data set and its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor


class Example(NamedTuple):
    """An augmented example of a step."""

    image: Tensor  # (C, S, S): uint8, where 255 is 1.0, or float32 pixels in [0, 1]; alike in all of a set
    truth: Tensor  # label, int64 (), or label map, uint8 (S, S)
    # top, left, bottom, right of the rectangle filled with noise later; empty fills nothing
    erased: tuple[int, int, int, int] = (0, 0, 0, 0)


class Examples(Protocol):
    """Examples of a training set, made by forks of this process, which inherit open files."""

    @property
    def ids(self) -> Sequence[str]:
        """Unique example ids in stable order, (n,)."""

    def make(self, index: int, seed: int) -> Example:
        """Example at an index, with all its draws from a seed: the same bits in any process and order.

        Global generators (Python's, numpy's, torch's) are seeded here; `MadeBatches` restores them.
        """
