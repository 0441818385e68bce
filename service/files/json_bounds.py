"""Bounds of a stranger's JSON, checked on its bytes before a parser allocates.

A value of JSON takes up to a hundred times its bytes as an object of Python, so bytes alone bound nothing:
objects and lists, values and depth are counted too, in one pass that allocates nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_DEPTH = 12
# A string counts as one token; so does one without an end, and the pass is linear.
_TOKENS = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_OPENING, _CLOSING = b"[{", b"]}"


@dataclass(frozen=True)
class JsonBounds:
    """The most that a text has."""

    size: int  # in bytes
    values: int
    containers: int  # objects and lists

    def check(self, text: bytes) -> None:
        """Refuse a text over a bound, as ValueError, before it is parsed."""
        _refuse(len(text), self.size, "bytes")
        commas = text.count(b",")  # Those in strings count too: texts have few.
        _refuse(commas, self.values, "values")
        depth = containers = 0
        for token in _TOKENS.finditer(text):
            first = text[token.start()]
            if first in _OPENING:
                depth, containers = depth + 1, containers + 1
                _refuse(containers, self.containers, "objects and lists")
                _refuse(depth, MAX_DEPTH, "levels")
            elif first in _CLOSING:
                depth -= 1
        _refuse(commas + containers, self.values, "values")


def _refuse(found: int, allowed: int, what: str) -> None:
    if found > allowed:
        raise ValueError(f"{found:,} {what} or more; allowed: {allowed:,}")
