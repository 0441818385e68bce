"""Both databases, and a service over one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from assay.service.app import create_app
from assay.service.settings import Settings
from assay.service.store.store import Store
from tests.service.conftest import AppTransport, running
from tests.support.databases import *  # noqa: F403 (fixtures)


@pytest.fixture
def transport(store: Store, tmp_path: Path) -> Iterator[AppTransport]:
    """The service's application, on a loop of its own."""
    with running(create_app(Settings(state=tmp_path, require_keys=True), store=store)) as transport:
        yield transport


@pytest.fixture
def http(transport: AppTransport) -> Iterator[httpx.Client]:
    with httpx.Client(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
