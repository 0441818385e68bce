"""p-values adjusted for the number of tests.

Holm 1979, "A Simple Sequentially Rejective Multiple Test Procedure": the adjusted values control the chance
of any false rejection among m tests, however the tests depend on each other. Benjamini and Hochberg 1995,
"Controlling the False Discovery Rate": they control the expected share of false rejections among all
rejections, for tests that are independent or positively dependent.

Adjusted values are compared with the level itself: reject at 5 % where the adjusted p is at most 0.05.

Legend: m tests; p_(i) the i-th smallest of the p-values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

Adjustment = Literal["holm", "benjamini_hochberg"]


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values: max over j <= i of min(1, (m - j + 1) p_(j)).

    They are in the order of the raw p-values, (m,), in [0, 1], each at least its raw one; none gives none.
    ValueError: a value is outside [0, 1] or not a number.
    """
    order = _ascending(p)
    scaled = (min(1.0, (len(p) - rank) * p[place]) for rank, place in enumerate(order))
    return _in_place(order, list(accumulate(scaled, max)))


def benjamini_hochberg(p: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values, as in `holm`: min over j >= i of min(1, p_(j) m / j)."""
    order = _ascending(p)
    scaled = [min(1.0, p[place] * len(p) / rank) for rank, place in enumerate(order, 1)]
    return _in_place(order, list(accumulate(reversed(scaled), min))[::-1])


ADJUSTMENTS: Mapping[Adjustment, Callable[[Sequence[float]], list[float]]] = {
    "holm": holm,
    "benjamini_hochberg": benjamini_hochberg,
}


def _ascending(p: Sequence[float]) -> list[int]:
    if wrong := [value for value in p if math.isnan(value) or not 0 <= value <= 1]:
        raise ValueError(f"p-values must be in [0, 1]; got {wrong[0]}")
    return sorted(range(len(p)), key=p.__getitem__)


def _in_place(order: Sequence[int], adjusted: Sequence[float]) -> list[float]:
    placed = [0.0] * len(order)
    for place, value in zip(order, adjusted, strict=True):
        placed[place] = value
    return placed
