"""The outcome columns of two jobs on their common examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class PairedColumns:
    """Two models' outcomes of the same examples. Nothing is computed before it is asked for.

    Args:
        columns: Outcome columns of both, in any order of the examples.
        rows: The row of each example in them.
        ids: The examples that both have.
        seed: Key of the draws.
    """

    def __init__(
        self,
        columns: tuple[Mapping[str, Sequence[Any]], Mapping[str, Sequence[Any]]],
        rows: tuple[Mapping[str, int], Mapping[str, int]],
        ids: Sequence[str],
        seed: str,
    ) -> None:
        self._columns = columns
        self._rows = rows
        self._ids = ids
        self._seed = seed
