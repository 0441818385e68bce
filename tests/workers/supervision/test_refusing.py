"""A worker that must contain its evaluators and cannot takes no work, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.service.store.store import Store
from tests.support.workers import ended, settings, submit, supervising, wait_for


def test_it_takes_no_work_and_does_not_count_as_online(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"files": "no Landlock"}
    monkeypatch.setattr("assay.workers.containment.probe.missing_parts", lambda _: missing)
    job_id = submit(store, "")
    with supervising(store, settings(tmp_path, sandbox="required")):
        found = wait_for(store.workers.containments)
        assert found == [{"mode": "required", "missing": ["files"], "optional": []}]
        assert store.workers.online("auto") == 0
        assert store.jobs.get(job_id).state == "queued"
    with supervising(store, settings(tmp_path, sandbox="auto")):
        assert ended(store, job_id).state == "succeeded"
