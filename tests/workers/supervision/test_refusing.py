"""A worker that must contain its evaluators and cannot takes no work, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.service.store.store import Store
from assay.workers.containment.probe import Sandbox
from tests.support.workers import ended, settings, submit, supervising, wait_for


@pytest.mark.parametrize(
    ("part", "demands"), [("files", {"sandbox": "required"}), ("user", {"sandbox_user": "required"})]
)
def test_it_takes_no_work_and_does_not_count_as_online(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, demands: dict[str, Any]
) -> None:
    missing = {part: "no Landlock"}
    monkeypatch.setattr("assay.workers.containment.probe.missing_parts", lambda _: missing)
    job_id = submit(store, "")
    with supervising(store, settings(tmp_path, **demands)):
        found = wait_for(store.workers.containments)
        mode = demands.get("sandbox", "auto")
        assert found == [{"mode": mode, "missing": [part], "optional": [], "compiles": False}]
        assert store.workers.online("auto") == 0
        assert store.jobs.get(job_id).state == "queued"
    with supervising(store, settings(tmp_path, sandbox="auto")):
        assert ended(store, job_id).state == "succeeded"


@pytest.mark.parametrize(
    ("chosen", "compiles"),
    [
        ({}, False),
        ({"sandbox_compile": "on"}, True),
        ({"sandbox": "off"}, True),
    ],
)
def test_it_says_whether_its_evaluators_may_start_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: dict[str, Any], compiles: bool
) -> None:
    monkeypatch.setattr("assay.workers.containment.probe.missing_parts", lambda _: {})
    sandbox = Sandbox(settings(tmp_path, **{"sandbox": "required", **chosen}).trial)
    sandbox.find_out()
    assert sandbox.record is not None
    assert sandbox.record["compiles"] is compiles
