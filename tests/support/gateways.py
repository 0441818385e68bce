"""A service with a gateway in this process, and ledgers over it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from assay.service.app import create_app
from assay.service.settings import Settings
from assay.service.store.store import Store
from assay.workers.gateway.connection import Gateway
from assay.workers.gateway.files import GatewayFiles
from assay.workers.gateway.ledger import GatewayLedger
from assay.workers.settings import WorkerSettings
from tests.support.serving import LiveServer
from tests.support.workers import settings

POOL = "pool"


@contextmanager
def serving(store: Store, state: Path, port: int = 0, **changes: Any) -> Iterator[LiveServer]:
    """The service over HTTP; it asks for keys."""
    server = LiveServer(create_app(Settings(state=state, require_keys=True, **changes), store=store), port)
    try:
        yield server
    finally:
        server.stop()


def worker_key(store: Store, tenant: str = POOL) -> str:
    """A new key of a pool of workers."""
    return store.keys.create("workers", ["worker"], tenant=tenant)[1]


def node_settings(state: Path, url: str, key: str, **changes: Any) -> WorkerSettings:
    """Of a node with its own state folder."""
    return settings(state, gateway=url, worker_key=key, **changes)


@contextmanager
def ledger_of(chosen: WorkerSettings, wait_seconds: float = 0.0) -> Iterator[GatewayLedger]:
    """A ledger, whose claims wait so long."""
    with closing(Gateway(chosen)) as gateway:
        yield GatewayLedger(gateway, GatewayFiles(gateway, chosen), wait_seconds)
