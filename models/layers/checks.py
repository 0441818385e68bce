"""Checks of builders' parameters: a ValueError says the parameter, what is allowed and what was given."""

from __future__ import annotations


def at_least(name: str, given: float, low: float) -> None:
    """Rejects a number below `low`, and NaN."""
    if not given >= low:
        raise ValueError(f"{name} must be at least {low}: got {given}")


def one_of(name: str, given: object, *allowed: object) -> None:
    """Rejects a value that is not among those allowed."""
    if given not in allowed:
        *others, last = map(repr, allowed)
        raise ValueError(f"{name} must be {', '.join(others)} or {last}: got {given!r}")
