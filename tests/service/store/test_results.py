"""Outcomes, results, artifacts and workers: written and read back."""

from __future__ import annotations

import dataclasses
import math

import pytest

from assay.service.contract.errors import NotFound
from assay.service.store import results
from assay.service.store.database import Database
from assay.service.store.store import Store
from tests.support.jobs import add, claim, evaluate_spec, outcome, planned, train_spec

UNKNOWN = "0" * 26


def test_outcomes_come_back_as_they_were_in_shard_order(store: Store) -> None:
    job_id = planned(store, 3, 2)
    held = [claim(store) for _ in range(5)]
    written = [
        dataclasses.replace(
            outcome(one, extra={"backend": "native", "largest": math.inf}),
            columns={"id": ["nan", "é"], "loss": [-math.inf, 0.1 + 0.2], "correct": [True, False]},
            n=2,
            seconds=0.1,
            forward_passes=2**40,
        )
        for one in held
    ]
    for i in (4, 2, 0, 3, 1):
        assert store.shards.finish(held[i], written[i]) is not None
    assert store.results.outcomes(job_id, None) == written
    assert store.results.outcomes(job_id, 0) == written[:3]
    assert store.results.outcomes(job_id, 1) == written[3:]
    assert store.results.outcomes(job_id, 2) == []
    assert store.results.outcomes(UNKNOWN, None) == []
    assert store.results.outcomes_of_jobs([job_id, UNKNOWN], 1) == {job_id: written[3:]}
    assert store.results.outcomes_of_jobs([job_id], 1, tenant="other") == {}


def test_a_row_of_each_evaluation_is_found_by_its_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = planned(store, 3, 2)
    for _ in range(5):
        held = claim(store)
        ids = [f"{held.evaluation}-{place}" for place in range(held.start, held.stop)]
        written = dataclasses.replace(outcome(held), columns={"id": ids, "loss": [math.inf] * len(ids)})
        store.shards.finish(held, dataclasses.replace(written, n=len(ids)))
    last = store.results.example(job_id, held.stop - 1)
    assert last[0] == {"id": [f"0-{held.stop - 1}"], "loss": [math.inf]}
    assert last[1]["id"] == [f"1-{held.stop - 1}"]
    assert store.results.example(job_id, 10**6) == {}
    assert store.results.example(UNKNOWN, 0) == {}
    monkeypatch.setattr(results, "MAX_EXAMPLE_ROWS", 1)
    assert list(store.results.example(job_id, 0, first=1)) == [1]
    monkeypatch.setattr(results, "MAX_EXAMPLE_ROWS", 10**6)
    assert list(store.results.example(job_id, 0, first=1)) == [1, 0]
    monkeypatch.setattr(results, "MAX_EXAMPLE_BYTES", 1)
    assert list(store.results.example(job_id, 0, first=1)) == [1]


def test_rows_of_many_values_are_neither_kept_nor_shown(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = planned(store, 1)
    held = claim(store)
    columns = {"id": ["x" * 200], "logits": [[0.5] * 1000], "stages": [{"a": 1}], "correct": [True]}
    store.shards.finish(held, dataclasses.replace(outcome(held), columns=columns, n=1))
    assert store.results.example(job_id, held.start) == {0: {"id": ["x" * 200], "correct": [True]}}
    read: list[object] = []
    of_shard = results.ResultRows._columns
    monkeypatch.setattr(results.ResultRows, "_columns", lambda *a: read.append(a) or of_shard(*a))
    for most, times in (203, 1), (202, 2):
        monkeypatch.setattr(results, "MAX_EXAMPLE_WEIGHT", most)
        fresh = results.ResultRows(store._database)
        read.clear()
        for _ in range(2):
            fresh.example(job_id, held.start)
        assert len(read) == times


def test_the_outcome_of_a_training_is_read_like_any_other(store: Store) -> None:
    job_id = add(store, train_spec())
    held = claim(store)
    written = outcome(held, extra={"plan": {"batch_size": 64}, "losses": [math.nan]})
    finished = store.shards.finish(held, written)
    assert finished is not None
    assert finished.evaluation_done
    assert finished.job_done
    read = store.results.outcomes(job_id, 0)
    assert len(read) == 1
    assert (read[0].evaluation, read[0].number, read[0].extra["plan"]) == (0, 0, {"batch_size": 64})
    assert math.isnan(read[0].extra["losses"][0])


def test_results_are_replaced_when_saved_again(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    for evaluation, value in ((1, 0.5), (0, 0.25), (1, 0.1 + 0.2)):
        store.results.save(job_id, evaluation, {"name": "pgd", "value": value})
    assert store.results.of(job_id) == {
        0: {"name": "pgd", "value": 0.25},
        1: {"name": "pgd", "value": 0.1 + 0.2},
    }
    assert list(store.results.of(job_id)) == [0, 1]


def test_a_result_that_is_no_json_is_refused(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    with pytest.raises(Exception, match="not JSON compliant"):
        store.results.save(job_id, 0, {"value": math.nan})
    assert store.results.of(job_id) == {}


def test_artifacts_are_listed_by_name_and_replaced(store: Store) -> None:
    job_id, other = add(store, evaluate_spec()), add(store, evaluate_spec())
    store.artifacts.add(job_id, "b.csv", "/s/b.csv", 2**40, "sha-b", "text/csv")
    store.artifacts.add(job_id, "a.npz", "/s/a.npz", 1, "sha-a", "application/zip")
    store.artifacts.add(job_id, "a.npz", "/s/a2.npz", 2, "sha-a2", "application/zip")
    store.artifacts.add(other, "a.npz", "/o/a.npz", 3, "sha-o", "application/zip")
    listed = store.artifacts.of(job_id)
    assert [(row.name, row.path, row.size, row.sha256) for row in listed] == [
        ("a.npz", "/s/a2.npz", 2, "sha-a2"),
        ("b.csv", "/s/b.csv", 2**40, "sha-b"),
    ]
    assert store.artifacts.get(job_id, "b.csv") == listed[1]
    assert listed[0].created_at >= store.jobs.get(job_id).created_at
    for owner, name in ((job_id, "c"), (UNKNOWN, "a.npz"), (job_id, "\0")):
        with pytest.raises(NotFound):
            store.artifacts.get(owner, name)


def test_what_belongs_to_a_deleted_job_is_not_written(store: Store) -> None:
    with pytest.raises(NotFound):
        store.results.save(UNKNOWN, 0, {})
    with pytest.raises(NotFound):
        store.artifacts.add(UNKNOWN, "a", "/a", 1, "sha", "text/plain")


def online(store: Store) -> list[int]:
    return [store.workers.online(device) for device in ("auto", "cpu", "cuda")]


def test_workers_count_while_they_give_signs_of_life(store: Store) -> None:
    store.workers.beat("w1", "host", ["cpu"], 1)
    store.workers.beat("w2", "host", ["cuda"], 2)
    store.workers.beat("w2", "host", ["cuda"], 2)
    assert online(store) == [2, 1, 1]
    assert store.workers.online("auto", within_seconds=-1) == 0
    store.workers.gone("w1")
    store.workers.gone("w1")
    assert online(store) == [1, 0, 1]


def test_a_worker_counts_for_every_device_class_that_it_serves(store: Store) -> None:
    store.workers.beat("gpu", "host", ["cuda", "cpu"], 1)
    assert online(store) == [1, 1, 1]
    store.workers.beat("gpu", "host", ["cuda"], 1)
    assert online(store) == [1, 0, 1], "a later beat replaces what it serves"
    assert [store.workers.online(device) for device in ("cud", "uda", "%", "_____", "cuda,")] == [0] * 5


def test_ping_answers_and_says_when_the_database_is_away(store: Store) -> None:
    from sqlalchemy.exc import OperationalError

    store.ping()
    nobody = Store(Database("postgresql+psycopg://postgres@127.0.0.1:1/none"))
    with pytest.raises(OperationalError):
        nobody.ping()
    nobody.close()


def test_a_closed_store_opens_again(store: Store) -> None:
    job_id = add(store, evaluate_spec())
    store.close()
    assert store.jobs.get(job_id).id == job_id
