"""From outcomes to results: in any order, exactly once, or not at all."""

from __future__ import annotations

import csv
import itertools
import json
import math
import random
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.service.contract.errors import NotFound
from assay.service.contract.results import Provenance, StageBreakdown
from assay.service.metrics.registry import TABLES
from assay.service.metrics.statistics.intervals import wilson
from assay.service.metrics.table import joined
from assay.service.metrics.tables.classification import COLUMNS
from assay.service.plots.render import RenderError
from assay.service.store.rows import Finished, JobRow, OutcomeRow
from assay.service.store.store import Store
from assay.workers.jobs import merge, plots
from assay.workers.supervision.completion import finish_job, merge_and_finish
from tests.support.jobs import add, claim, evaluate_spec, train_spec
from tests.support.outcomes import columns, rows
from tests.support.workers import settings

PGD = {"name": "pgd", "params": {"epsilon": 0.1}, "data": None}
FACTS = {"batch_size": 4, "untrained": False, "weights_sha256": "w", "data_sha256": {"digits": "d"}}
SIZE = 4


def plan(count: int, evaluations: int = 1) -> dict[str, Any]:
    shards = [
        {"evaluation": e, "number": i, "start": i * SIZE, "stop": (i + 1) * SIZE, "cost": 1.0}
        for e in range(evaluations)
        for i in range(count)
    ]
    sizes = [{"n": count * SIZE, "available": count * SIZE}] * evaluations
    return {"device": "cpu", "evaluations": sizes, **FACTS, "shards": shards}


def measured_job(store: Store, count: int = 3, evaluations: int = 1) -> JobRow:
    """A job all of whose shards are done, and nothing is merged."""
    job_id = add(store, evaluate_spec() | {"evaluations": [PGD] * evaluations})
    assert store.shards.finish_plan(claim(store), plan(count, evaluations))
    for evaluation in range(evaluations):
        for row in rows(count, evaluation=evaluation):
            assert store.shards.finish(claim(store), row) is not None
    return store.jobs.get(job_id)


def sorted_columns(outcomes: list[OutcomeRow]) -> dict[str, list[Any]]:
    return joined(TABLES["attack"].columns, [row.columns for row in outcomes])


def merged(job: JobRow, outcomes: list[OutcomeRow]) -> str:
    found = merge.merge_evaluation(job, 0, outcomes)
    return found.result.model_dump_json() + found.csv


def test_any_order_of_shards_gives_the_same_bits(store: Store) -> None:
    job, outcomes = measured_job(store, 4), rows(4)
    assert len({merged(job, list(order)) for order in itertools.permutations(outcomes)}) == 1


def test_any_cut_into_shards_gives_the_same_metrics(store: Store) -> None:
    job = measured_job(store, 6)
    everything = sorted_columns(rows(6))
    shuffled = list(everything["id"])
    random.Random(3).shuffle(shuffled)
    whole = replace(rows(1)[0], columns=columns(shuffled), n=24)
    assert sorted_columns([whole]) == everything
    one, many = (merge.merge_evaluation(job, 0, r).result.metrics for r in ([whole], rows(6)))
    assert one == many


def test_metrics_and_passes(store: Store) -> None:
    job = measured_job(store)
    table = sorted_columns(rows(3))
    result = merge.merge_evaluation(job, 0, rows(3)).result
    assert result.metrics["top1"].value == sum(table["correct"]) / 12
    before = [now for now, was in zip(table["correct"], table["clean_correct"], strict=True) if was]
    assert result.metrics["attack_success_rate"].n == len(before)
    assert (result.forward_passes, result.backward_passes) == (36, 24)
    assert result.seconds == math.fsum([0.1, 0.2, 0.1 * 3])
    assert (result.backend, result.protocol) == ("native", "pixel")


def test_a_rate_without_examples_is_null_with_a_warning(store: Store) -> None:
    outcomes = rows(3)
    for row in outcomes:
        row.columns["clean_correct"][:] = row.columns["correct"][:] = [False] * SIZE
    result = merge.merge_evaluation(measured_job(store), 0, outcomes).result
    assert result.metrics["attack_success_rate"].value is None
    assert "undefined_metric" in [warning.code for warning in result.warnings]


def test_without_attack_there_is_no_success_rate(store: Store) -> None:
    job, outcomes = measured_job(store), rows(3, attack=False)
    clean = {"name": "clean", "params": {}, "data": None}
    job = replace(job, spec=job.spec | {"evaluations": [clean]})
    result = merge.merge_evaluation(job, 0, outcomes).result
    assert "attack_success_rate" not in result.metrics
    assert result.warnings == []


def test_an_example_that_was_measured_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        sorted_columns([*rows(2), rows(2)[1]])


def test_missing_examples_are_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="8 of 12 examples"):
        merged(measured_job(store, 3), rows(2))
    with pytest.raises(ValueError, match="no outcomes"):
        merged(measured_job(store, 3), [])


def test_a_loss_that_is_not_finite_is_an_empty_cell(store: Store) -> None:
    outcomes = rows(3)
    outcomes[0].columns["loss"][:] = [None] * SIZE
    job = measured_job(store)
    table = sorted_columns(outcomes)
    found = merge.merge_evaluation(job, 0, outcomes)
    cells = list(csv.DictReader(found.csv.splitlines()))
    assert [c["loss"] for c in cells].count("") == SIZE
    assert [float(c["loss"]) for c in cells if c["loss"]] == [x for x in table["loss"] if x is not None]
    assert {c["correct"] for c in cells} == {"0", "1"}
    assert [c["id"] for c in cells] == sorted(c["id"] for c in cells)


def with_norms(outcomes: list[OutcomeRow]) -> list[OutcomeRow]:
    """The outcomes with the columns that attacks have since they keep norms; all but the last were right."""
    for row in outcomes:
        before, after = row.columns["clean_correct"], row.columns["correct"]
        before[:] = [True] * (SIZE - 1) + [False]
        after[-1] = False
        broken = [was and not now for was, now in zip(before, after, strict=True)]
        norms = [0.01 * (1 + int(i)) if b else 0.0 for i, b in zip(row.columns["id"], broken, strict=True)]
        rounded = [right or int(i) % 2 == 0 for i, right in zip(row.columns["id"], after, strict=True)]
        row.columns.update({"linf": norms, "l2": [3 * norm for norm in norms], "correct8": rounded})
    return outcomes


def test_norms_and_rounded_accuracy_are_merged_and_in_the_table(store: Store) -> None:
    job, outcomes = measured_job(store), with_norms(rows(3))
    table = sorted_columns(outcomes)
    whole = merge.merge_evaluation(job, 0, outcomes)
    found = whole.result.metrics
    broken = sorted(norm for norm in table["linf"] if norm)
    assert found["median_linf"].value == pytest.approx(statistics.median(broken))
    assert (found["median_linf"].n, found["median_l2"].ci_method) == (len(broken), "too_few")
    assert found["median_l2"].value == pytest.approx(3 * statistics.median(broken))
    assert found["top1_8bit"].value == sum(table["correct8"]) / 12
    cells = list(csv.DictReader(whole.csv.splitlines()))
    assert [float(cell["linf"]) for cell in cells] == table["linf"]
    assert {cell["correct8"] for cell in cells} == {"0", "1"}
    assert len({merged(job, list(order)) for order in itertools.permutations(outcomes)}) == 1


def test_outcomes_without_norms_merge_without_their_metrics(store: Store) -> None:
    job, old = measured_job(store), rows(3)
    new = with_norms(rows(3))
    mixed = [*new[:2], replace(new[2], columns={k: v for k, v in new[2].columns.items() if k != "l2"})]
    whole = merge.merge_evaluation(job, 0, mixed)
    assert set(whole.result.metrics) == {"top1", "top5", "top1_8bit", "attack_success_rate", "median_linf"}
    assert ",l2" not in whole.csv.splitlines()[0]
    assert merge.merge_evaluation(job, 0, old).csv.splitlines()[0] == COLUMNS.replace(" ", ",")
    for row in old:
        row.columns.update({"linf": [None] * SIZE, "l2": [None] * SIZE})
    found = merge.merge_evaluation(job, 0, old).result.metrics
    assert set(found) == {"top1", "top5", "attack_success_rate"}


def test_queries_are_of_the_attacked_examples(store: Store) -> None:
    outcomes = with_norms(rows(3))
    for row in outcomes:
        row.columns.update({"backward": [0] * SIZE, "queries": [1 + int(i) for i in row.columns["id"]]})
    job, table = measured_job(store), sorted_columns(outcomes)
    pixel = merge.merge_evaluation(job, 0, outcomes).result.metrics["queries"]
    attacked = [f for f, was in zip(table["queries"], table["clean_correct"], strict=True) if was]
    assert (pixel.value, pixel.n) == (pytest.approx(sum(attacked) / len(attacked)), len(attacked))
    paper_job = replace(job, spec=job.spec | {"protocol": "paper"})
    paper = merge.merge_evaluation(paper_job, 0, outcomes).result.metrics["queries"]
    assert (paper.value, paper.n) == (pytest.approx(sum(table["queries"]) / 12), 12)


def test_a_shard_tells_its_own_protocol(store: Store) -> None:
    job = measured_job(store)
    job = replace(job, spec=job.spec | {"protocol": "paper"})
    for extra, protocol in (({}, "paper"), ({"protocol": "pixel"}, "pixel")):
        outcomes = rows(3, **extra)
        assert merge.merge_evaluation(job, 0, outcomes).result.protocol == protocol


def stage(name: str, n: int, broken: int) -> dict[str, Any]:
    return {"name": name, "n": n, "broken": broken, "forward": 10 * n, "backward": n, "seconds": 0.1 * n}


def test_stages_of_shards_add_up_to_a_breakdown(store: Store) -> None:
    job, outcomes = measured_job(store), rows(3)
    first, second = [stage("apgd_ce", 3, 3)], [stage("apgd_ce", 4, 1), stage("apgd_t", 3, 1)]
    for row, stages in zip(outcomes, (first, second, []), strict=True):
        row.extra["evidence"] = {"stages": stages}
    found = [merge.merge_evaluation(job, 0, o).result.breakdown for o in (outcomes, outcomes[::-1])]
    assert found[0] == found[1]
    ce, targeted = (part.model_dump() for part in found[0])
    assert (ce["stage"], ce["n"], ce["broken"], ce["forward_passes"], ce["backward_passes"]) == (
        "apgd_ce",
        7,
        4,
        70,
        7,
    )
    assert (targeted["stage"], targeted["n"], targeted["broken"]) == ("apgd_t", 3, 1)
    assert ce["seconds"] == pytest.approx(0.7)
    assert [part["metrics"]["top1"]["value"] for part in (ce, targeted)] == [3 / 12, 2 / 12]
    assert (ce["metrics"]["top1"]["ci_low"], ce["metrics"]["top1"]["ci_high"]) == wilson(3, 12)


def test_a_stage_that_was_screened_first_is_one_stage(store: Store) -> None:
    outcomes = rows(3)
    outcomes[0].extra["evidence"] = {"stages": [stage("apgd_ce", 10, 6), stage("apgd_ce", 4, 1)]}
    (part,) = merge.merge_evaluation(measured_job(store), 0, outcomes).result.breakdown
    assert isinstance(part, StageBreakdown)
    assert (part.n, part.broken, part.forward_passes) == (10, 7, 140)
    assert part.metrics["top1"].value == 3 / 12


@pytest.mark.parametrize(
    ("execution", "screened", "told"),
    [
        ({}, [], None),
        ({"dtype": "bfloat16"}, ["pgd"], "gradients in bfloat16, successes judged in float32"),
        ({"dtype": "bfloat16"}, [], "float32; clean answers in bfloat16"),
        ({"dtype": "tf32"}, [], "float32"),
    ],
)
def test_a_row_has_the_arithmetic_of_its_evidence(
    store: Store, execution: dict[str, Any], screened: list[str], told: str | None
) -> None:
    job, outcomes = measured_job(store), rows(3)
    job = replace(job, spec={**job.spec, "execution": {**job.spec["execution"], **execution}})
    for outcome in outcomes:
        outcome.extra["evidence"]["screened"] = screened
    assert merge.merge_evaluation(job, 0, outcomes).result.arithmetic == told


def test_saving_twice_changes_nothing(store: Store, tmp_path: Path) -> None:
    chosen, job = settings(tmp_path), measured_job(store, evaluations=2)
    states = []
    for _ in range(2):
        for evaluation in range(2):
            merge.save_evaluation(store, chosen.file_store, job.id, evaluation)
        finish_job(store, chosen, job.id)
        files = {a.name: (a.sha256, Path(a.path).read_bytes()) for a in store.artifacts.of(job.id)}
        states.append((store.results.of(job.id), files, store.jobs.get(job.id).state))
    assert states[0] == states[1]
    assert states[0][2] == "succeeded"
    tables = [name for name in sorted(files) if not name.startswith("plot-")]
    assert tables == ["outcomes-000-pgd.csv", "outcomes-001-pgd.csv"]
    assert "plot-curve.vl.json" in files
    assert {p.name for p in chosen.folder(job.id).iterdir()} == set(files), "no half-written files"


def test_a_merged_job_has_a_summary(store: Store, tmp_path: Path) -> None:
    job = measured_job(store)
    assert store.jobs.get(job.id).summary is None
    finish_job(store, settings(tmp_path), job.id)
    (saved,) = store.results.of(job.id).values()
    found = store.jobs.get(job.id).summary
    assert found is not None
    top1 = saved["metrics"]["top1"]
    worst = {"metric": "top1", "value": top1["value"], "n": top1["n"], "at": "25.5/255", "radius": 0.1}
    worst |= {"invalid": []}
    assert found.model_dump() == {"clean": None, "worst": worst, "invalid": []}


def test_an_evaluation_is_merged_before_the_job_is_done(store: Store, tmp_path: Path) -> None:
    job = measured_job(store, evaluations=2)
    finished = Finished(evaluation_done=True, job_done=False)
    held = replace(a_claim(store), job_id=job.id, evaluation=1)
    merge_and_finish(store, settings(tmp_path), held, finished)
    assert list(store.results.of(job.id)) == [1]
    assert store.jobs.get(job.id).state == "running"


def test_a_plot_that_cannot_be_rendered_fails_no_job(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    formats = []

    def render(spec: dict[str, Any], format: str) -> bytes:  # noqa: A002
        formats.append(format)
        if spec["usermeta"]["assay"]["kind"] == "curve":
            raise RenderError("crashed")
        return b"<svg/>"

    monkeypatch.setattr(plots, "render", render)
    job = measured_job(store)
    finish_job(store, settings(tmp_path, render_plots=True), job.id)
    assert store.jobs.get(job.id).state == "succeeded"
    names = {one.name for one in store.artifacts.of(job.id)}
    assert {"plot-curve.vl.json", "plot-cost.vl.json", "plot-cost.svg"} <= names
    assert "plot-curve.svg" not in names
    assert set(formats) == {"svg"}


def a_claim(store: Store) -> Any:
    add(store, evaluate_spec())
    return claim(store)


def test_a_file_that_cannot_be_written_fails_the_job(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its user reads why, the log has the path."""
    job = measured_job(store)
    (tmp_path / "artifacts").write_text("in the way")
    finish_job(store, settings(tmp_path), job.id)
    failed = store.jobs.get(job.id)
    assert failed.state == "failed"
    assert failed.error is not None
    assert failed.error["type"] == "save_failed"
    assert "Not a directory" in failed.error["message"]
    assert str(tmp_path) not in failed.error["message"]
    assert str(tmp_path) in caplog.text


def test_a_deleted_job_is_no_error(store: Store, tmp_path: Path) -> None:
    finish_job(store, settings(tmp_path), "0" * 26)
    with pytest.raises(NotFound):
        merge.save_job(store, settings(tmp_path).file_store, "0" * 26)


def test_provenance_names_all_devices_once(store: Store) -> None:
    outcomes = rows(3)
    outcomes[2].extra["provenance"]["device"] = {"type": "cuda"}
    found = merge.provenance(measured_job(store), outcomes)
    assert found["device"] == {"type": "cpu", "mixed": [{"type": "cpu"}, {"type": "cuda"}], "batch_size": 4}
    assert "mixed" not in merge.provenance(measured_job(store), rows(3))["device"]
    assert (found["weights_sha256"], found["data_sha256"]) == ("w", {"digits": "d"})
    assert found["times"]["shards"] == 3
    json.dumps(found)


def test_provenance_has_the_version_of_the_draws_and_1_for_earlier_releases(store: Store) -> None:
    outcomes = rows(2)
    assert merge.provenance(measured_job(store), outcomes)["draws"] == 1
    for row in outcomes:
        row.extra["provenance"]["draws"] = 2
    found = merge.provenance(measured_job(store), outcomes)
    assert found["draws"] == 2
    stored = {name: value for name, value in found.items() if name != "draws"}
    assert Provenance.model_validate(stored).draws == 1


def test_a_training_brings_its_own_plan_and_files(store: Store, tmp_path: Path) -> None:
    job_id = add(store, train_spec())
    file = {"name": "weights.safetensors", "path": "/w", "size": 3, "sha256": "s", "media_type": "m"}
    (row,) = rows(1, attack=False, artifacts=[file], plan=plan(1))
    finished = store.shards.finish(claim(store), row)
    assert finished == Finished(evaluation_done=True, job_done=True)
    merge_and_finish(store, settings(tmp_path), replace(a_claim(store), job_id=job_id), finished)
    assert store.jobs.get(job_id).state == "succeeded"
    assert store.results.of(job_id)[0]["name"] == "clean"
    names = {a.name for a in store.artifacts.of(job_id) if not a.name.startswith("plot-")}
    assert names == {"weights.safetensors", "outcomes-000-clean.csv"}


def test_a_job_deleted_while_its_plots_are_drawn_leaves_no_files(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = measured_job(store)
    seen = []

    def render(spec: dict[str, Any], format: str) -> bytes:  # noqa: A002
        seen.append(store.jobs.get(job.id).state)
        store.jobs.delete(job.id)
        for file in (tmp_path / "artifacts" / job.id).iterdir():
            file.unlink()
        return b"<svg/>"

    monkeypatch.setattr(plots, "render", render)
    finish_job(store, settings(tmp_path, render_plots=True), job.id)
    assert seen == ["succeeded"], "a job ends before its pictures are drawn"
    assert not (tmp_path / "artifacts" / job.id).exists()


def with_code(row: OutcomeRow, source: str, **packages: str) -> OutcomeRow:
    """The row as measured by other code."""
    provenance = {**row.extra["provenance"], "code": {"version": "1", "source_sha256": source}}
    return replace(row, extra={**row.extra, "provenance": {**provenance, "packages": packages}})


@pytest.mark.parametrize(
    ("second", "said"),
    [(("b", {"torch": "2"}), "source b and a"), (("a", {"torch": "2+cpu"}), r"torch 2\+cpu and 2")],
)
def test_a_mixture_of_code_or_packages_fails_the_job(
    store: Store, tmp_path: Path, second: tuple[str, dict[str, str]], said: str
) -> None:
    job_id = add(store, evaluate_spec() | {"evaluations": [PGD]})
    assert store.shards.finish_plan(claim(store), plan(2))
    made = [("a", {"torch": "2"}), second]
    for row, (source, packages) in zip(rows(2), made, strict=True):
        assert store.shards.finish(claim(store), with_code(row, source, **packages)) is not None
    finish_job(store, settings(tmp_path), job_id)
    job = store.jobs.get(job_id)
    assert job.state == "failed"
    assert job.error is not None
    assert job.error["type"] == "mixed_identities"
    assert re.search(said, job.error["message"])
    assert store.results.of(job_id) == {}


def test_shards_by_other_code_than_planned_are_no_result() -> None:
    planned = {"digest": "d", "source_sha256": "a", "packages": {"torch": "2"}, "catalog": "c"}
    measured = [with_code(row, "a", torch="2", gymnasium="1") for row in rows(2)]
    merge.check_identities({"identity": planned}, measured)
    for other in ({**planned, "source_sha256": "b"}, {**planned, "packages": {"torch": "3"}}):
        with pytest.raises(merge.MixedIdentities, match="assay replan"):
            merge.check_identities({"identity": other}, measured)
