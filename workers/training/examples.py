"""Training examples that are made one by one: what stands between a data set and its batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor


class Example(NamedTuple):
    """One example, changed for one step.

    Attributes:
        image: (C, S, S): uint8, where 255 is 1.0, or float32 in the units of pixels in [0, 1].
        truth: its label, int64 (), or its label map, uint8 (S, S).
    """

    image: Tensor
    truth: Tensor


class Examples(Protocol):
    """The examples of a training set, made anew for each visit.

    Other processes make them, copies of this one (fork): what is opened at the start is theirs too.
    """

    @property
    def ids(self) -> Sequence[str]:
        """Unique example ids in stable order, (n,)."""

    def make(self, index: int, seed: int) -> Example:
        """The example at an index, with all its draws from a seed.

        The same index and seed give the same bits, in whatever process and order. What is drawn from global
        generators (Python's, numpy's, torch's) is seeded here; `MadeBatches` puts them back.
        """
