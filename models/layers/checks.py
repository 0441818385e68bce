"""Checks of builders' parameters: a ValueError says the parameter, what is allowed and what was given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def at_least(name: str, given: float, low: float) -> None:
    """Rejects a number below `low`, and NaN."""
    if not given >= low:
        raise ValueError(f"{name} must be at least {low}: got {given}")


def one_of(name: str, given: object, *allowed: object) -> None:
    """Rejects a value that is not among those allowed."""
    if given not in allowed:
        *others, last = map(repr, allowed)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}: got {given!r}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest one; empty where none is near."""
    nearest = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
