"""How many files a reader enters who follows a shard of an evaluation, and how often the reader comes back.

A room is a file of ours with a named function that runs during `evaluate.run`. Functions count once, in the
order of their first calls; a return is a visit of a file that was left before. The process is warm, as for
every shard of an evaluator but its first; the session is new, so that data and model are loaded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from assay.service.catalog.catalog import load
from assay.service.submission.validate import validate
from assay.workers.jobs import evaluate, plan
from assay.workers.jobs.session import Session
from tests.support.trips import ROOT, Trip, followed

MODEL = {"image_size": 32, "patch_size": 8, "depth": 1, "width": 32, "heads": 2}
CLEAN = {"name": "clean"}
PGD = {"name": "pgd", "params": {"epsilon": "8/255", "steps": 3}}


def trip_of(item: dict[str, Any], folder: Path, *, weights: bool) -> Trip:
    """The trip of an evaluation's only shard, 16 digits by a small transformer."""
    body = {
        "kind": "evaluate",
        "model": {"name": "symvit", "params": MODEL},
        "data": {"name": "digits"},
        "limit": 16,
        "evaluations": [item],
        "execution": {"device": "cpu", "batch_size": 16},
    }
    spec: dict[str, Any] = {**validate(load(), body).spec}
    request: dict[str, Any] = {"weights": None, "folder": str(folder), "sources": {}}
    if weights:
        made = Session().classifier(spec, device="cpu", weights=None).classifier  # type: ignore[arg-type]
        save_file(made.state_dict(), folder / "weights.safetensors")
        spec["model"] = {**spec["model"], "weights": {"job": "0" * 26}}
        request["weights"] = str(folder / "weights.safetensors")
    request["spec"] = spec
    planned = plan.run(request | {"shard_seconds": 1e9}, Session(), lambda _: None)["plan"]
    (shard,) = planned["shards"]
    for _ in range(2):
        with followed() as trip:
            evaluate.run(request | {"plan": planned} | shard, Session(), lambda _: None)
    return trip


@pytest.mark.parametrize(
    ("item", "weights", "rooms", "returns"),
    [(CLEAN, False, 54, 86), (PGD, True, 80, 131)],
    ids=["clean", "pgd with weights"],
)
def test_a_shard_is_a_trip_of_so_many_rooms(
    tmp_path: Path, item: dict[str, Any], weights: bool, rooms: int, returns: int
) -> None:
    """The numbers only fall; `trip.visits` is the way."""
    trip = trip_of(item, tmp_path, weights=weights)
    assert "workers/jobs/evaluate.py" in trip.visits
    assert trip.rooms <= rooms, trip.visits
    assert trip.returns <= returns, trip.visits


def test_rooms_and_returns_are_counted() -> None:
    def named(file: str, name: str) -> Any:
        place = str(ROOT / "service" / file)
        return compile(f"def {name}(): pass", place, "exec").co_consts[0]

    trip = Trip([named("a.py", "f"), named("a.py", "g"), named("b.py", "f"), named("a.py", "h")])
    assert (trip.visits, trip.rooms, trip.returns) == (["service/a.py", "service/b.py", "service/a.py"], 2, 1)


def test_only_named_functions_of_ours_count() -> None:
    with followed() as trip:
        list(map(str, [load(), Path()]))
        [*(one for one in "ab")]
    assert {code.co_name for code in trip.functions} <= {"load"}
