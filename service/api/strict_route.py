"""Routes that refuse query parameters which their signatures do not have, or that are given twice.

A misspelt filter would filter nothing, and one of two values would silently win.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Annotated, Any, get_args, get_origin

from fastapi import Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from assay.service.contract.problems import Problems, nearest

# A hash in the address of what browsers keep: another content, another address. Nothing reads it.
Version = Annotated[str, Query(include_in_schema=False)]


class StrictRoute(APIRoute):
    """A route that reads its query parameters from the signatures of its function and dependencies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler that FastAPI calls, behind the check of names."""
        handle = super().get_route_handler()
        repeatable = dict(_parameters(self.dependant))

        async def checked(request: Request) -> Response:
            _check(request, repeatable)
            return await handle(request)

        return checked


def _parameters(dependant: Dependant) -> Iterator[tuple[str, bool]]:
    """Names of the parameters of dependencies, then of the function, and whether they are lists."""
    for dependency in dependant.dependencies:
        yield from _parameters(dependency)
    for field in dependant.query_params:
        annotation = field.field_info.annotation
        yield field.alias, list in {get_origin(part) for part in (annotation, *get_args(annotation))}


def _check(request: Request, repeatable: dict[str, bool]) -> None:
    problems = Problems()
    every: dict[str, list[str]] = {}
    for name, value in request.query_params.multi_items():
        every.setdefault(name, []).append(value)
    known = tuple(repeatable)
    for name, given in every.items():
        if problems.full:
            problems.unlisted += 1
        elif name not in repeatable:
            near = nearest(name, known)
            problems.add(("query", name), "unknown parameter", given=given[-1], allowed=known, nearest=near)
        elif len(given) > 1 and not repeatable[name]:
            problems.add(("query", name), "is given more than once", given=given, allowed="one value")
    problems.raise_if_any()
