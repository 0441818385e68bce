"""A bounded memory of what is costly to make and does not change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar


def table_weight(columns: Mapping[str, Sequence[object]]) -> int:
    """Cells and characters of a table of flat columns, at least 1: few rows may hold much."""
    texts = (
        cells for cells in columns.values() if not {int, float, bool, type(None)}.issuperset(map(type, cells))
    )
    characters = sum(len(one) for cells in texts for one in cells if isinstance(one, str))
    return 1 + sum(map(len, columns.values())) + characters


CacheKey = TypeVar("CacheKey", bound=Hashable)
Kept = TypeVar("Kept")


class LruCache(Generic[CacheKey, Kept]):
    """Values by key, the least recently used ones dropped; safe with several threads.

    Two threads may both make a value that is not kept yet: making it holds no lock. `most`: Largest sum of
    the sizes. `size`: Of a value; by default each counts 1. A value larger than `most` is not kept.
    """

    def __init__(self, most: int, size: Callable[[Kept], int] = lambda _: 1) -> None:
        self._most = most
        self._size = size
        self._lock = threading.Lock()
        self._values: OrderedDict[CacheKey, Kept] = OrderedDict()
        self._sum = 0

    def get_or_make(self, key: CacheKey, make: Callable[[], Kept]) -> Kept:
        """The value, made if it is not kept."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
        value = make()
        size = self._size(value)
        with self._lock:
            if key not in self._values and size <= self._most:
                self._values[key] = value
                self._sum += size
                while self._sum > self._most:
                    self._sum -= self._size(self._values.popitem(last=False)[1])
        return value
