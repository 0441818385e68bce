"""From outcome rows in a real store, through the merge, to what `GET /jobs/{id}/results` answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.service.api.results import finished_results
from assay.service.catalog.catalog import load
from assay.service.contract.errors import NoResults
from assay.service.contract.results import Results
from assay.service.store.rows import Claim, OutcomeRow
from assay.service.store.store import Store
from assay.workers.settings import WorkerSettings
from assay.workers.supervision.completion import merge_and_finish
from tests.support.jobs import add, claim, evaluate_spec, train_spec

N = 4
EVALUATIONS = [
    {"name": "clean", "params": {}, "data": None},
    {"name": "uniform_noise", "params": {"epsilon": "2/255"}, "data": None},
    {"name": "pgd", "params": {"epsilon": "2/255", "steps": 20}, "data": None},
    {"name": "pgd", "params": {"epsilon": "4/255", "steps": 20}, "data": None},
]
PLAN = {
    "device": "cpu",
    "batch_size": 2,
    "untrained": False,
    "weights_sha256": "w",
    "data_sha256": {"digits": "d"},
    "evaluations": [{"n": N, "available": N}] * len(EVALUATIONS),
}


class Bench:
    """One job in a store of its own, worked on by hand."""

    def __init__(self, store: Store, settings: WorkerSettings) -> None:
        self.store = store
        self.settings = settings

    def planned(self) -> str:
        self.job_id = add(self.store, evaluate_spec() | {"evaluations": EVALUATIONS})
        halves = [(e, half) for e in range(len(EVALUATIONS)) for half in (0, 1)]
        shards = [
            {"evaluation": e, "number": half, "start": 2 * half, "stop": 2 * half + 2, "cost": 1.0}
            for e, half in halves
        ]
        assert self.store.shards.finish_plan(claim(self.store), {**PLAN, "shards": shards})
        return self.job_id

    def half(self, correct: Sequence[int]) -> None:
        """Measures the next half of an evaluation, and does what follows."""
        held = claim(self.store)
        attack = EVALUATIONS[held.evaluation]["name"] != "clean"
        row = outcome(held, held.start, correct, attack=attack)
        finished = self.store.shards.finish(held, row)
        assert finished is not None
        merge_and_finish(self.store, self.settings, held, finished)

    def measure(self, *evaluations: Sequence[int]) -> None:
        for correct in evaluations:
            self.half(correct[:2])
            self.half(correct[2:])

    def results(self) -> Results:
        found = finished_results(self.store, self.store.jobs.get(self.job_id), load())
        # Every attack on these ten classes has this note.
        left = [warning for warning in found.warnings if warning.code != "top5_upper_bound"]
        return found.model_copy(update={"warnings": left})


def outcome(
    held: Claim, start: int, correct: Sequence[int], *, attack: bool, extra: dict[str, Any] | None = None
) -> OutcomeRow:
    n = len(correct)
    columns = {
        "id": [f"{start + position:05d}" for position in range(n)],
        "label": [1] * n,
        "prediction": [1 if right else 0 for right in correct],
        "correct": [bool(right) for right in correct],
        "correct5": [True] * n,
        "clean_correct": [True] * n,
        "loss": [0.5] * n,
        "forward": [2] * n,
        "backward": [1] * n,
    }
    provenance = {"code": {}, "packages": {}, "device": {"type": "cpu"}}
    common = {"attack": attack, "evidence": {}, "provenance": provenance}
    return OutcomeRow(held.evaluation or 0, held.number, n, columns, 1.0, 2 * n, n, common | (extra or {}))


@pytest.fixture
def bench(tmp_path: Path, store: Store) -> Bench:
    return Bench(store, WorkerSettings(state=tmp_path))


def top1(results: Results) -> list[tuple[str, float | None, int]]:
    return [(part.name, part.metrics["top1"].value, part.metrics["top1"].n) for part in results.evaluations]


def test_a_running_job_shows_the_evaluations_that_are_done(bench: Bench) -> None:
    bench.planned()
    with pytest.raises(NoResults, match="running"):
        bench.results()
    bench.half([1, 1])
    with pytest.raises(NoResults):
        bench.results()
    bench.half([1, 0])
    results = bench.results()
    assert (results.complete, results.error, results.provenance) == (False, None, None)
    assert top1(results) == [("clean", 0.75, N)]


def test_a_failed_job_shows_them_with_its_error(bench: Bench) -> None:
    job_id = bench.planned()
    bench.measure([1, 1, 1, 0])
    bench.half([1, 1])
    bench.store.shards.fail(claim(bench.store), "out_of_memory", "8 GB were not enough", retry=False)
    results = bench.results()
    assert bench.store.jobs.get(job_id).state == "failed"
    assert results.complete is False
    assert results.error is not None
    assert (results.error.type, results.error.message) == ("out_of_memory", "8 GB were not enough")
    assert top1(results) == [("clean", 0.75, N)]


def test_a_canceled_job_shows_them_and_a_retry_adds_to_them(bench: Bench) -> None:
    job_id = bench.planned()
    bench.measure([1, 1, 1, 0])
    assert bench.store.jobs.cancel(job_id).state == "canceled"
    results = bench.results()
    assert (results.complete, results.error, top1(results)) == (False, None, [("clean", 0.75, N)])
    bench.store.jobs.retry(job_id)
    bench.measure([1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 0, 0])
    results = bench.results()
    assert results.complete is True
    assert [value for _, value, _ in top1(results)] == [0.75, 0.5, 0.5, 0.25]
    assert results.provenance is not None
    assert results.warnings == []


def test_the_checks_across_evaluations_hold_for_partial_results_too(bench: Bench) -> None:
    job_id = bench.planned()
    bench.measure([1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0])
    assert [warning.code for warning in bench.results().warnings] == ["noise_stronger_than_gradient"]
    bench.store.jobs.fail(job_id, "save_failed", "the disk is full")
    assert [warning.code for warning in bench.results().warnings] == ["noise_stronger_than_gradient"]
    assert bench.results().complete is False


def test_accuracy_that_rises_with_epsilon_is_warned_of(bench: Bench) -> None:
    bench.planned()
    bench.measure([1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0])
    results = bench.results()
    assert results.complete is True
    assert [warning.code for warning in results.warnings] == ["accuracy_rises_with_epsilon"]


def test_a_training_has_one_clean_evaluation(bench: Bench) -> None:
    bench.job_id = add(bench.store, train_spec())
    held = claim(bench.store)
    plan = {**PLAN, "evaluations": [{"n": N, "available": N}]}
    row = outcome(held, 0, [1, 1, 1, 0], attack=False, extra={"plan": plan, "artifacts": []})
    finished = bench.store.shards.finish(held, row)
    assert finished is not None
    assert (finished.evaluation_done, finished.job_done) == (True, True)
    merge_and_finish(bench.store, bench.settings, held, finished)
    assert list(bench.store.results.of(bench.job_id)) == [0]
    results = bench.results()
    assert results.complete is True
    assert top1(results) == [("clean", 0.75, N)]
    assert results.evaluations[0].data["name"] == "digits"
    assert results.provenance is not None
    assert results.provenance.weights_sha256 == "w"
    names = [artifact.name for artifact in bench.store.artifacts.of(bench.job_id)]
    assert names == ["outcomes-000-clean.csv", "plot-classes.vl.json", "plot-confusion.vl.json"]
