"""All pages of the dashboard, and its static files."""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import PurePosixPath

from fastapi import APIRouter, FastAPI, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from assay.service import features
from assay.service.api.deps import StrictRoute, Version
from assay.service.contract.errors import NotFound
from assay.service.dashboard import catalog, compare, examples, job, jobs, live, overview, submit
from assay.service.dashboard.frame import (
    HEADERS,
    STATIC,
    compile_templates,
    compressed,
    error_page,
    static_file,
)
from assay.service.galleries import example
from assay.service.plots import pictures


@asynccontextmanager
async def _start(app: FastAPI) -> AsyncIterator[None]:
    del app
    await run_in_threadpool(compile_templates)
    yield


files = APIRouter(route_class=StrictRoute, include_in_schema=False, lifespan=_start)
PAGES = (
    overview, jobs, job, pictures, examples, example, live, compare, submit, catalog,
)  # fmt: skip
ROUTERS: list[APIRouter] = [files, *(module.router for module in (*PAGES, *features.modules("pages")))]


@files.get(STATIC + "/{name}")
def static(request: Request, name: str, v: Version = "") -> Response:
    """A style sheet, script or picture; its address has its hash, so that browsers keep it."""
    del v
    kind = mimetypes.guess_type(name)[0]
    try:
        if kind is None or PurePosixPath(name).name != name or not name.isprintable():
            raise FileNotFoundError
        content, _ = static_file(name)
    except FileNotFoundError:
        raise NotFound(f"no route '{STATIC}/{name[:100]}'") from None
    body, encoding = compressed(request, content)
    kept = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
    return Response(body, media_type=kind, headers={**HEADERS, **kept, **encoding})


def install(app: FastAPI) -> None:
    """Adds the pages to the application."""
    app.state.made_once = {}
    app.state.error_page = error_page
    for router in ROUTERS:
        app.include_router(router)
