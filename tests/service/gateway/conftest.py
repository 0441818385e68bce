"""Both databases, and a service over one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from assay.service.app import create_app
from assay.service.settings import Settings
from assay.service.store.store import Store, open_store
from tests.service.conftest import AppTransport, running
from tests.support.databases import *  # noqa: F403 (fixtures)


@pytest.fixture
def store(sqlite_template: Path, tmp_path: Path) -> Iterator[Store]:
    """An empty store on SQLite."""
    shutil.copy(sqlite_template, tmp_path / "assay.sqlite")
    with open_store(f"sqlite:///{tmp_path / 'assay.sqlite'}", migrate=False) as opened:
        yield opened


@pytest.fixture
def either_store(database_url: str) -> Iterator[Store]:
    """An empty store; the test runs on SQLite and on PostgreSQL."""
    with open_store(database_url, migrate=False) as opened:
        yield opened


@pytest.fixture
def transport(store: Store, tmp_path: Path) -> Iterator[AppTransport]:
    """The service's application, on a loop of its own."""
    with running(create_app(Settings(state=tmp_path, require_keys=True), store=store)) as transport:
        yield transport


@pytest.fixture
def http(transport: AppTransport) -> Iterator[httpx.Client]:
    with httpx.Client(transport=transport, base_url="http://127.0.0.1") as client:
        yield client
