"""A store for the tests of the workers: SQLite unless a test asks for both kinds of database."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.service.store.store import Store, open_store
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
