"""Query parameters of pages that name one of several things."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated

from fastapi import Query

from assay.service.contract.errors import ErrorDetail, InvalidSpec
from assay.service.contract.problems import nearest

# A filter of a form that is left empty filters nothing.
Filter = Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$")]
# Allowed values that a message lists, and the characters of each.
MAX_NAMES, MAX_NAME = 20, 50
PageNumber = Annotated[int, Query(ge=1, le=10_000)]


def check_choice(field: str, given: str, allowed: Collection[str]) -> None:
    """Refuses a value that is neither empty nor allowed."""
    if given and given not in allowed:
        listed = ", ".join(one[:MAX_NAME] for one in list(allowed)[:MAX_NAMES]) or "none so far"
        more = f" and {len(allowed) - MAX_NAMES} more" if len(allowed) > MAX_NAMES else ""
        shown = f"allowed: {listed}{more}"
        raise refused(field, f"the {field} {given[:50]!r} is unknown; {shown}", given, list(allowed))


def refused(field: str, message: str, given: object, allowed: Sequence[str] | str) -> InvalidSpec:
    """The error for a query parameter."""
    near = None if isinstance(allowed, str) else nearest(given, allowed)
    detail = ErrorDetail(loc=["query", field], message=message, given=given, allowed=allowed, nearest=near)
    return InvalidSpec(message, [detail])
