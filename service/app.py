"""The FastAPI application; it is assembled only here."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from sqlalchemy.exc import OperationalError
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware

from assay.service import features
from assay.service.api import errors, metrics, openapi
from assay.service.api.authentication import SESSION_PATH, KeyGuard
from assay.service.api.deps import StoreOpener
from assay.service.api.direct_routes import DirectRoutes
from assay.service.api.event_feed import Feed, StreamLimit
from assay.service.api.refusals import Refusals
from assay.service.api.routes import ROUTERS
from assay.service.catalog.catalog import Catalog, load
from assay.service.connection_guard import ConnectionGuard
from assay.service.dashboard import routes as dashboard
from assay.service.dispatch import Dispatcher, NullDispatcher
from assay.service.middleware import BodyCap, ErrorBoundary, HostGuard, Manners
from assay.service.settings import Settings
from assay.service.store.live import Live
from assay.service.store.store import Store
from assay.service.submission.packages import HasPackage, ListPulled
from assay.service.telemetry import Requests, Telemetry

logger = logging.getLogger(__name__)

MAX_LOGIN_BYTES = 16 * 1024
DESCRIPTION = Path(__file__).with_name("description.md").read_text(encoding="utf-8")


def create_app(
    settings: Settings,
    store: Store | None = None,
    dispatcher: Dispatcher | None = None,
    catalog: Catalog | None = None,
    has_package: HasPackage | None = None,
    list_pulled: ListPulled | None = None,
    prepare: Callable[[Store], None] = lambda _: None,
) -> FastAPI:
    """Assembles the service.

    The caller closes a given `store`; else the store that the settings name is opened, and `prepare` called
    with it. Without a `dispatcher` (the doorbell) workers poll; `catalog` is by default the committed
    `catalog.json`. `has_package` (whether the workers have a Python package) and `list_pulled` (what weights
    are pulled beside the service) are None where the workers run elsewhere.
    """
    opener = StoreOpener(settings.database, store, prepare)
    live = Live(settings.redis)
    refusals = Refusals(opener, live)
    requests = Requests()
    app = FastAPI(
        title="Assay",
        version=openapi.VERSION,
        description=DESCRIPTION,
        lifespan=_lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
        # Its own spans would have queries.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        middleware=[
            Middleware(Telemetry, requests=requests),
            Middleware(Manners),
            Middleware(ErrorBoundary),
            Middleware(HostGuard, allowed_hosts=[*settings.allowed_hosts, settings.host]),
            Middleware(KeyGuard, opener=opener, refusals=refusals, required=settings.keys_required),
            Middleware(BodyCap, max_bytes=settings.max_body_bytes, others=_other_caps(settings)),
        ],
    )
    app.state.settings = settings
    app.state.store = opener
    app.state.feed = Feed(opener)
    app.state.at_stop = []  # Coroutine functions, called as the server stops
    app.state.streams = StreamLimit(settings.max_streams, settings.max_streams_per_tenant)
    app.state.connections = ConnectionGuard(settings)
    app.state.live = live
    app.state.refusals = refusals
    app.state.numbers = metrics.Numbers(settings, app.version, requests, opener, app.state.connections)
    app.state.dispatcher = dispatcher or NullDispatcher()
    app.state.catalog = catalog or load()
    app.state.has_package = has_package
    app.state.list_pulled = list_pulled
    errors.install(app)
    app.router.routes.append(DirectRoutes(ROUTERS))
    for router in ROUTERS:
        app.include_router(router)
    app.state.routes = [route for router in ROUTERS for route in router.routes]
    openapi.install(app)
    openapi.install_page(app)
    dashboard.install(app)
    return app


def _other_caps(settings: Settings) -> dict[tuple[str, str], int]:
    """Bytes of a body, by method and path, where they are not `max_body_bytes`."""
    limits = {SESSION_PATH: min(MAX_LOGIN_BYTES, settings.max_body_bytes)}  # Anyone may log in.
    for module in features.modules("routes"):
        if declared := getattr(module, "body_limits", None):
            limits |= declared(settings)
    return {("POST", path): limit for path, limit in limits.items()}


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    opener: StoreOpener = app.state.store
    try:
        await run_in_threadpool(opener)
    except OperationalError:
        logger.exception("the database is away; /readyz answers 503 until it is back")
    yield
    app.state.feed.close()
    for close in app.state.at_stop:
        await close()
    app.state.live.close()
    app.state.numbers.close()
    await run_in_threadpool(opener.close)
