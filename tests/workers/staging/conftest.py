"""A folder of data, and a store in which it is published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.service.files.data_store import DataStore, PublishedSet
from assay.workers.staging.publishing import publish
from assay.workers.staging.sources import FolderSource

FILES = {"crow/1.png": b"one", "crow/2.png": b"two", "wren/1.png": b"one", "wren/large.bin": b"x" * 3_000_000}
Publish = Callable[..., PublishedSet]


def fill(folder: Path, files: dict[str, bytes] | None = None) -> None:
    """Writes files, by path."""
    for name, content in (FILES if files is None else files).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a folder, by path."""
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


@pytest.fixture
def data_store(tmp_path: Path) -> DataStore:
    return DataStore(tmp_path / "store")


@pytest.fixture
def source(data_store: DataStore) -> FolderSource:
    return FolderSource(data_store)


@pytest.fixture
def published(tmp_path: Path, data_store: DataStore) -> Publish:
    """Publishes files under a name."""

    def call(
        name: str = "birds", files: dict[str, bytes] | None = None, tenants: tuple[str, ...] = ()
    ) -> PublishedSet:
        root = tmp_path / "origin"
        fill(root / name, files)
        return publish(root, name, data_store, state=tmp_path / "state", tenants=tenants)

    return call
