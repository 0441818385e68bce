"""A study of an embedded service becomes evidence, as far as its seeds are whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from assay.service.settings import Settings
from benchmarks.evidence.collected import collected

Make = Callable[..., dict[str, Any]]


def test_whole_seeds_are_collected(
    api: httpx.Client, settings: Settings, worker: Any, evaluate_body: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"started_at": "2026-11-30T01:00:00.000Z", "measured_seconds": 1.5}
    told = {"times": times, "code": {"commit": "0" * 40}, "packages": {}, "device": {"name": "a processor"}}
    monkeypatch.setitem(type(worker).train.__globals__, "provenance", lambda: told)
    arms = [{"name": name, "model": {"name": name}} for name in ("tiny_vit", "other_vit")]
    body = {
        "kind": "study",
        "seeds": 3,
        "arms": arms,
        "recipe": {"name": "short"},
        "data": {"name": "digits"},
    }
    body |= {"evaluations": [evaluate_body()["evaluations"][0]]}
    study = api.post("/api/v1/studies", json=body).json()
    runs = [run for arm in study["runs"] for run in arm["runs"]]
    with pytest.raises(ValueError, match="of no seed"):
        collected(settings.state, study["id"])
    for run in sorted(runs, key=lambda run: run["seed"]):
        worker.train(run["train"])
        if run["seed"] < 2:
            worker.run(run["evaluate"], [1, 0, 1, run["seed"]])
    found = collected(settings.state, study["id"])
    assert (found.spec["seeds"], found.facts["jobs"]) == ([0, 1], 8)
    assert (found.facts["first_run"], found.facts["seconds"]) == (times["started_at"], 12)
    assert found.results().seeds == [0, 1]
    assert [arm.mean for arm in found.results().cells[0].arms] == [0.625, 0.625]
