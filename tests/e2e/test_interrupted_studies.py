"""A study that is killed, loses its last writes and moves: the bits of an undisturbed one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from assay.service.client import AssayClient
from tests.e2e.jobs import outcomes, weights
from tests.e2e.running import SHARDED, RunningService, processes, wait_for
from tests.e2e.test_studies import RATES, study

WAL_FRAME = 24 + 4096  # Bytes of SQLite's write-ahead log for a page
OFTEN = {"ASSAY_WORKERS": "2", "ASSAY_CHECKPOINT_SECONDS": "0.3", **SHARDED}


@pytest.mark.slow  # two studies of eight jobs
def test_an_interrupted_study_ends_with_the_same_bits(tmp_path: Path) -> None:
    """kill -9; then a copy of its state folder elsewhere, without the last writes, as after a power cut."""
    spec = study(recipe={"name": "small_vit", "params": RATES | {"epochs": 12}})
    calm = RunningService(tmp_path / "calm", **SHARDED).start()
    rough = RunningService(tmp_path / "rough", **OFTEN).start()
    elsewhere = RunningService(tmp_path / "elsewhere" / "state", **OFTEN)
    try:
        expected = measured(calm.client, calm.client.submit_study(spec).id, tmp_path / "expected")
        calm.close()
        posted = rough.client.submit_study(spec)
        first = posted.runs[0].runs[0].train
        assert first is not None
        wait_for(lambda: rough.client.job(first).progress.done > 40, 120)
        killed(rough)
        rough.start()
        wait_for(lambda: rough.client.study(posted.id).jobs.get("succeeded", 0) >= 3, 240)
        killed(rough)
        shutil.copytree(rough.state, elsewhere.state)
        log = elsewhere.state / "assay.sqlite-wal"
        lost = min(3 * WAL_FRAME, log.stat().st_size // 2)
        assert lost, "there are writes that a power cut can lose"
        with log.open("rb+") as file:
            file.truncate(log.stat().st_size - lost)
        shutil.rmtree(rough.state)
        elsewhere.start()
        assert elsewhere.client.study(posted.id).state != "succeeded", "too late: it would prove nothing"
        assert measured(elsewhere.client, posted.id, tmp_path / "found") == expected
    finally:
        for one in (calm, rough, elsewhere):
            one.close()


def killed(running: RunningService) -> None:
    """kill -9 of the service and, by its death, of its evaluators."""
    evaluators = set(running.evaluators())
    running.kill()
    wait_for(lambda: not evaluators & set(processes()), 120)


def measured(client: AssayClient, study_id: str, folder: Path) -> dict[str, Any]:
    """Every value of the table, and of each run the weights and the outcomes of every example."""
    ended = client.wait_study(study_id, timeout_seconds=400, poll_seconds=0.2)
    assert ended.state == "succeeded", ended.message
    runs = {(arm.name, run.seed): run for arm in ended.runs for run in arm.runs}
    cells = client.study_results(study_id).cells
    found: dict[str, Any] = {"cells": [cell.model_dump(mode="json") for cell in cells]}
    for (arm, seed), run in runs.items():
        assert run.train is not None
        tables = outcomes(client, run.evaluate, folder / f"{arm}-{seed}")
        assert len(tables) == 2
        found[f"{arm}, {seed}"] = (weights(client, run.train), tables)
    return found
