"""Files on a shared volume: where they are, and that nothing is moved."""

from __future__ import annotations

from pathlib import Path

from assay.service.store.store import Store
from assay.workers.supervision.claim_files import SharedFiles
from tests.support.jobs import claim, planned
from tests.support.workers import settings


def test_shared_files_stay_where_they_are(store: Store, tmp_path: Path) -> None:
    planned(store, 1)
    held, chosen = claim(store), settings(tmp_path)
    files = SharedFiles(chosen)
    assert files.weights(held, "J") == tmp_path / "artifacts" / "J" / "weights.safetensors"
    files.resume(held)
    files.keep(held, 3)
    assert not (tmp_path / "artifacts").exists()
