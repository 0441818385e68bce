"""The ledger of a worker beside the database: the settings' limits hold, and it merges."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.store.rows import Finished
from assay.service.store.store import Store
from assay.workers.supervision import direct_ledger
from assay.workers.supervision.direct_ledger import DirectLedger
from tests.support.jobs import claim, planned
from tests.support.workers import settings
from tests.workers.supervision.test_ledger import asked


def test_claims_are_bounded_by_the_settings(store: Store, tmp_path: Path) -> None:
    planned(store, 2)
    ledger = DirectLedger(store, settings(tmp_path, max_running_shards=1))
    assert ledger.claim(asked()) is not None
    assert ledger.claim(asked()) is None


def test_completed_work_is_merged_here(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(store, 1)
    held, finished, chosen = claim(store), Finished(evaluation_done=True, job_done=True), settings(tmp_path)
    merged: list[object] = []
    monkeypatch.setattr(direct_ledger, "merge_and_finish", lambda *given: merged.append(given))
    DirectLedger(store, chosen).complete(held, finished)
    assert merged == [(store, chosen, held, finished)]
