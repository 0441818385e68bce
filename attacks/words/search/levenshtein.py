"""Levenshtein distance of two texts, up to a limit."""

from __future__ import annotations


def within(first: str, second: str, limit: int) -> bool:
    """Whether the distance is within `limit` insertions, deletions and substitutions.

    Only cells within `limit` of the table's diagonal are filled: all others exceed it.
    """
    first, second = _without_common_start(first, second)
    first, second = _without_common_start(first[::-1], second[::-1])
    if abs(len(first) - len(second)) > limit:
        return False
    if max(len(first), len(second)) <= limit:
        return True
    far = limit + 1
    row = [column if column <= limit else far for column in range(len(second) + 1)]
    for line, character in enumerate(first, start=1):
        low, high = max(1, line - limit), min(len(second), line + limit)
        below = [far] * (len(second) + 1)
        below[0] = line if line <= limit else far
        for column in range(low, high + 1):
            moved = row[column - 1] + (character != second[column - 1])
            below[column] = min(moved, row[column] + 1, below[column - 1] + 1)
        row = below
        if min(row) > limit:
            return False
    return row[-1] <= limit


def _without_common_start(first: str, second: str) -> tuple[str, str]:
    length = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        length += 1
    return first[length:], second[length:]
