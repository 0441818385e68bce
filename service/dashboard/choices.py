"""Query parameters of pages that name one of several things."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

from fastapi import Query

from assay.service.api.compare import MAX_JOBS
from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.problems import Problems, nearest

# A filter of a form that is left empty filters nothing.
Filter = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]
MIN_JOBS = 2  # of a comparison
PageNumber = Annotated[int, Query(ge=1, le=10_000)]


def check_choices(**asked: tuple[str, Collection[str]]) -> None:
    """Refuses values that are neither empty nor allowed, all at once; by field the given and the allowed."""
    problems = Problems()
    for field, (given, allowed) in asked.items():
        if given and given not in allowed:
            names, near = [*allowed] or "none so far", nearest(given, allowed)
            problems.add(("query", field), f"unknown {field}", given=given, allowed=names, nearest=near)
    problems.raise_if_any()


def miscounted(count: int) -> str:
    """Why so many chosen jobs are not compared; empty where they can be."""
    if MIN_JOBS <= count <= MAX_JOBS:
        return ""
    told = f"{count} are" if count > 1 else "1 is" if count else "none is"
    return f"A comparison has {MIN_JOBS} to {MAX_JOBS} jobs; {told} chosen."


def refused(field: str, message: str, given: object, allowed: Sequence[str] | str) -> InvalidSpec:
    """The error for a query parameter."""
    near = None if isinstance(allowed, str) else nearest(given, allowed)
    detail = ErrorDetail(loc=["query", field], message=message, given=given, allowed=allowed, nearest=near)
    return InvalidSpec(message, [detail])
