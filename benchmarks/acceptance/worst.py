"""Collects the cases of a check: the worst value of each kind, and what raised."""

from __future__ import annotations

import math
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.acceptance.record import Row, at_most, exactly, told

NAMED = 5


class Cases:
    """What the cases of a check gave.

    `worst` keeps the highest value of a kind with the case that had it, `broken` the cases in which something
    did not hold, `case` the errors that were raised.
    """

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self._worst: dict[str, tuple[float, float, str]] = {}
        self._broken: dict[str, list[str]] = {}
        self._raised: list[str] = []

    @contextmanager
    def case(self, group: str, name: str) -> Iterator[None]:
        """Counts a case; an error in it is kept, and the next case follows."""
        self.count[group] += 1
        try:
            yield
        except Exception as error:  # of any kind: the other cases tell more
            traceback.print_exc()
            self._raised.append(f"{name}: {type(error).__name__}: {str(error).partition(chr(10))[0][:200]}")

    def worst(self, what: str, value: float, bound: float, name: str, *, each: bool = False) -> None:
        """A value that must be at most its bound; NaN is the worst. With `each` every case has a row."""
        if each:
            what = f"{what}, {name}"
        known = self._worst.get(what)
        if known is None or math.isnan(value) or value > known[0]:
            self._worst[what] = (value, bound, name)

    def hold(self, what: str, held: bool, name: str) -> None:
        """Something that must hold in every case."""
        broken = self._broken.setdefault(what, [])
        if not held:
            broken.append(name)

    def rows(self) -> list[Row]:
        """Everything as rows."""
        found = [told(f"cases of {group}", count) for group, count in self.count.items()]
        found += [
            at_most(what, value, bound, None if what.endswith(f", {name}") else f"worst: {name}")
            for what, (value, bound, name) in self._worst.items()
        ]
        found += [
            exactly(f"cases in which {what} does not hold", len(names), 0, _named(names))
            for what, names in self._broken.items()
        ]
        found.append(exactly("cases that raised", len(self._raised), 0, _named(self._raised)))
        return found


def _named(names: list[str]) -> str | None:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{'; '.join(names[:NAMED])}{more}" if names else None
