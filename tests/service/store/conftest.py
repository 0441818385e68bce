"""A store on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from assay.service.store.store import Store, open_store
from tests.support.databases import *  # noqa: F403 (fixtures)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """An empty store; the test runs on SQLite and on PostgreSQL."""
    with open_store(database_url, migrate=False) as opened:
        yield opened
