"""Workers that reach the database themselves stage what waiting jobs need, where the settings ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assay.service.files.data_store import DataStore
from assay.service.store.store import Store
from assay.workers.embedded import _workers
from assay.workers.node import Node
from assay.workers.settings import WorkerSettings
from assay.workers.staging.publishing import publish
from assay.workers.supervision.direct_ledger import DirectLedger
from tests.support.jobs import add, claim, evaluate_spec, plan
from tests.support.workers import settings, wait_for


@contextmanager
def node(store: Store, chosen: WorkerSettings) -> Iterator[None]:
    """The supervisors of a Celery node."""
    made = Node(chosen, lambda job_id: None)
    made.start()
    try:
        yield
    finally:
        made.stop()


@contextmanager
def embedded(store: Store, chosen: WorkerSettings) -> Iterator[None]:
    """The supervisors of an embedded service."""
    with _workers(store, chosen, 1):
        yield


@pytest.mark.costly
@pytest.mark.parametrize("working", [node, embedded])
def test_what_a_job_waits_for_is_staged(store: Store, tmp_path: Path, working: Any) -> None:
    published, root = DataStore(tmp_path / "published"), tmp_path / "scratch"
    (tmp_path / "archive" / "birds").mkdir(parents=True)
    (tmp_path / "archive" / "birds" / "1.png").write_bytes(b"x")
    root.mkdir()
    chosen = settings(tmp_path, data_root=root, data_store=published.root, stage=True)
    add(store, evaluate_spec())
    assert DirectLedger(store, chosen).finish_plan(claim(store), plan(1), [{"folders": ["birds"]}], 0.0)
    with working(store, chosen):
        publish(tmp_path / "archive", "birds", published, state=tmp_path / "hashes")
        wait_for((root / "birds" / "1.png").is_file)
