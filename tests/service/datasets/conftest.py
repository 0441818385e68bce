"""A service with a store of data."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from assay.service.app import create_app
from assay.service.files.data_store import DataStore, PublishedSet, TreeFile
from assay.service.settings import Settings
from assay.service.store.store import Store, open_store
from tests.service.conftest import running
from tests.support.databases import *  # noqa: F403 (fixtures)


@pytest.fixture
def store(sqlite_template: Path, tmp_path: Path) -> Iterator[Store]:
    shutil.copy(sqlite_template, tmp_path / "assay.sqlite")
    with open_store(f"sqlite:///{tmp_path / 'assay.sqlite'}", migrate=False) as opened:
        yield opened


@pytest.fixture
def data_store(tmp_path: Path) -> DataStore:
    return DataStore(tmp_path / "data-store")


@pytest.fixture
def http(store: Store, tmp_path: Path, data_store: DataStore) -> Iterator[httpx.Client]:
    app = create_app(Settings(state=tmp_path, require_keys=True, data_store=data_store.root), store=store)
    with running(app) as transport, httpx.Client(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def put(
    place: DataStore, name: str, files: dict[str, bytes], tenants: list[str] | None = None
) -> PublishedSet:
    """Writes what `assay data publish` does."""
    listed = [TreeFile(path, len(text), hashlib.sha256(text).hexdigest()) for path, text in files.items()]
    tree = b"".join(one.line for one in sorted(listed))
    facts = {"name": name, "sha256": hashlib.sha256(tree).hexdigest(), "files": len(listed)}
    facts |= {"bytes": sum(one.size for one in listed), "published_at": "", "tenants": tenants}
    index = b"".join(sorted(bytes.fromhex(one.sha256) for one in listed))
    written = {place.record(name): json.dumps(facts).encode(), place.tree(str(facts["sha256"])): tree}
    written[place.tree(str(facts["sha256"])).with_suffix(".index")] = index
    for one in listed:
        written[place.root / "blobs" / one.sha256[:2] / one.sha256] = files[one.path]
    for path, content in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return place.find(name)
