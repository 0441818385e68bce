"""Analyses from their shards to a row of the results and its plot."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from assay.service.contract.results import LayerBreakdown
from assay.service.store.rows import JobRow, OutcomeRow
from assay.service.store.store import Store
from assay.workers.jobs import merge
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.completion import merge_and_finish
from tests.support.jobs import add, claim, evaluate_spec

LOSS = {"name": "projection_loss", "params": {"form": "released", "layers": "all"}, "data": None}
FACTS = {"batch_size": 2, "untrained": False, "weights_sha256": "w", "data_sha256": {"digits": "d"}}


def shard(number: int) -> OutcomeRow:
    """Two examples of a model of two layers; the ids are not in the order of the shards."""
    ids = [f"{(7 * row) % 101:03d}" for row in (2 * number, 2 * number + 1)]
    columns: dict[str, list[Any]] = {
        "id": ids,
        "log_phi": [[0.01 * int(i), 1.0] for i in ids],
        "output": [[0.1, 0.001 * int(i)] for i in ids],
        "negative": [[1, 0] for _ in ids],
        "terms": [[4, 4] for _ in ids],
        "forward": [1, 1],
        "backward": [0, 0],
    }
    extra = {
        "attack": False,
        "analysis": "projection_loss",
        "evidence": {"layers": [0, 1]},
        "provenance": {"code": {"version": "1"}, "packages": {}, "device": {"type": "cpu"}},
    }
    return OutcomeRow(0, number, 2, columns, 0.1, 2, 0, extra)


def plan(count: int) -> dict[str, Any]:
    shards = [
        {"evaluation": 0, "number": i, "start": 2 * i, "stop": 2 * i + 2, "cost": 1.0} for i in range(count)
    ]
    size = {"n": 2 * count, "available": 2 * count}
    return {"device": "cpu", "evaluations": [size], **FACTS, "shards": shards}


def planned_job(store: Store, count: int) -> JobRow:
    job_id = add(store, evaluate_spec() | {"evaluations": [LOSS]})
    assert store.shards.finish_plan(claim(store), plan(count))
    return store.jobs.get(job_id)


def test_any_order_of_shards_gives_the_same_row_table_and_plot(store: Store) -> None:
    job, found = planned_job(store, 3), set()
    for rows in itertools.permutations([shard(number) for number in range(3)]):
        merged = merge.merge_evaluation(job, 0, rows)
        assert merged.plot is not None
        found.add((merged.result.model_dump_json(), merged.csv, merged.plot))
    assert len(found) == 1


def test_a_job_leaves_a_table_and_a_plot(store: Store, tmp_path: Path) -> None:
    settings = WorkerSettings(state=tmp_path)
    job_id = planned_job(store, 2).id
    for number in range(2):
        held = claim(store)
        finished = store.shards.finish(held, shard(number))
        assert finished is not None
        merge_and_finish(store, settings, held, finished)
    files = {row.name: row for row in store.artifacts.of(job_id)}
    assert set(files) == {"outcomes-000-projection_loss.csv", "plot-000-projection_loss.svg"}
    assert files["plot-000-projection_loss.svg"].media_type == "image/svg+xml"
    ElementTree.fromstring((settings.folder(job_id) / "plot-000-projection_loss.svg").read_text())
    table = (settings.folder(job_id) / "outcomes-000-projection_loss.csv").read_text()
    lines = list(csv.DictReader(table.splitlines()))
    assert list(lines[0]) == ["id", "log_phi", "output", "negative", "terms", "forward", "backward"]
    assert [line["id"] for line in lines] == sorted(line["id"] for line in lines)
    assert lines[0]["log_phi"] == "0.0 1.0"
    row = store.results.of(job_id)[0]
    assert [part["layer"] for part in row["breakdown"]] == [0, 1]
    assert set(row["metrics"]) == {"log_projection_loss", "negative_terms"}
    assert (row["forward_passes"], row["backward_passes"]) == (4, 0)


def test_missing_examples_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="4 of 6 examples"):
        merge.merge_evaluation(planned_job(store, 3), 0, [shard(0), shard(2)])


def test_layers_of_controls_have_a_name_of_their_own() -> None:
    assert LayerBreakdown(layer=3, metrics={}).label == "layer 3"
    assert LayerBreakdown(layer=None, values="random", metrics={}).label == "random"
    assert LayerBreakdown(layer=1, values="permuted", metrics={}).label == "permuted/layer 1"
